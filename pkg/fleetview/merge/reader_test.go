package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readAll returns copies of the items, and the error that ended them.
func readAll(l *Reader) (items []string, err error) {
	for {
		item, err := l.Next()
		if err != nil {
			return items, err
		}
		items = append(items, string(item.JSON()))
	}
}

func TestReader(t *testing.T) {
	seven := int64(7)
	large := `{"a":"` + strings.Repeat("x\\n", 3*firstBuffer) + `"}`
	tests := map[string]struct {
		document    string
		want        []string
		wantMeta    ListMeta
		wantColumns string
	}{
		"typed": {
			document: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"c","remainingItemCount":7},"items":[{"a":1}, {"b":[{}]} ]}` + "\n",
			want:     []string{`{"a":1}`, `{"b":[{}]}`},
			wantMeta: ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "5", Continue: "c", RemainingItemCount: &seven},
		},
		"custom resources": {
			document: `{"apiVersion":"g/v1","items":[{}],"kind":"Things","metadata":{"continue":"","resourceVersion":"5"}}`,
			want:     []string{`{}`},
			wantMeta: ListMeta{APIVersion: "g/v1", Kind: "Things", ResourceVersion: "5"},
		},
		"null items":   {document: `{"kind":"PodList","items":null}`, wantMeta: ListMeta{Kind: "PodList"}},
		"no items":     {document: ` {"kind":"PodList","metadata":null} `, wantMeta: ListMeta{Kind: "PodList"}},
		"empty items":  {document: `{"items":[],"kind":"PodList"}`, wantMeta: ListMeta{Kind: "PodList"}},
		"unknown keys": {document: `{"a":[1,{}],"kind":"PodList","a":2,"items":[{}]}`, want: []string{"{}"}, wantMeta: ListMeta{Kind: "PodList"}},
		"large items":  {document: `{"items":[{},` + large + `,{},` + large + `]}`, want: []string{"{}", large, "{}", large}},
		"table": {
			document:    `{"kind":"Table","columnDefinitions":[{"name":"a"}],"rows":[{"cells":[1]}]}`,
			want:        []string{`{"cells":[1]}`},
			wantMeta:    ListMeta{Kind: "Table"},
			wantColumns: `[{"name":"a"}]`,
		},
		"table without rows": {document: `{"kind":"Table","rows":null}`, wantMeta: ListMeta{Kind: "Table"}},
	}
	for name, test := range tests {
		for how, from := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with EOF": iotest.DataErrReader,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				l := NewReader(from(strings.NewReader(test.document)))
				got, err := readAll(l)
				if err != io.EOF {
					t.Errorf("reading %.200s: got error %v, want io.EOF", test.document, err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("items of %.200s (-want +got):\n%.500s", test.document, diff)
				}
				if diff := cmp.Diff(test.wantMeta, l.Meta()); diff != "" {
					t.Errorf("meta of %.200s (-want +got):\n%s", test.document, diff)
				}
				if got := string(l.Columns()); got != test.wantColumns {
					t.Errorf("columns of %.200s: got %s, want %s", test.document, got, test.wantColumns)
				}
			})
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for _, document := range []string{
		`{"items":[{}]}{}`, `{"items":[{}]}]`, `{"items":[1]}`, `{"items":[null]}`, `{"items":[,{}]}`, `{"items":[{},]}`, `{"items":[{}{}]}`, `{"items":[{}],}`,
		`{"items":[{"a":}]}`, `{"items":[],"items":[]}`, `{"items":[],"rows":[]}`, `{"rows":[{}],"columnDefinitions":[]}`,
		`{"kind":"PodList","kind":"PodList","items":[]}`, `{"metadata":{},"metadata":{},"items":[]}`, `{"metadata":{"continue":1},"items":[]}`,
		`{"items":[{"a":` + strings.Repeat("[", maxDepth+1) + `]}`,
		`{"items":[{"a":"` + strings.Repeat("x", maxItem) + `"}]}`,
	} {
		_, err := readAll(NewReader(strings.NewReader(document)))
		if err == nil || err == io.EOF {
			t.Errorf("reading %.100s: got %v, want another error", document, err)
		}
		var not *NotListError
		if errors.As(err, &not) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading %.100s: got %v, want a syntax error", document, err)
		}
	}
}

func TestReaderNotList(t *testing.T) {
	status := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no"}`
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":"` + strings.Repeat("x", 2*firstBuffer) + `"}}`
	tests := map[string]struct{ document, wantKind, wantBegin string }{
		"Status":       {status, "Status", status},
		"object":       {pod, "Pod", pod[:beginning]},
		"no kind":      {`{}`, "", `{}`},
		"HTML":         {"<html>" + strings.Repeat(" ", 100), "", "<html>" + strings.Repeat(" ", 100)},
		"array":        {`[{}]`, "", `[{}]`},
		"odd items":    {`{"items":{}}`, "", `{"items":{}}`},
		"odd kind":     {`{"kind":1}`, "", `{"kind":1}`},
		"odd metadata": {`{"kind":"A","metadata":1}`, "A", `{"kind":"A","metadata":1}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := readAll(NewReader(iotest.HalfReader(strings.NewReader(test.document))))
			var not *NotListError
			if !errors.As(err, &not) {
				t.Fatalf("reading %.100s: got %v, want a NotListError", test.document, err)
			}
			if not.Kind != test.wantKind {
				t.Errorf("kind: got %q, want %q", not.Kind, test.wantKind)
			}
			if !strings.HasPrefix(test.document, string(not.Beginning)) || !strings.HasPrefix(string(not.Beginning), test.wantBegin) {
				t.Errorf("beginning: got %.100q, want %.100q", not.Beginning, test.wantBegin)
			}
		})
	}
}

// TestReaderBroken breaks off a document at each byte.
func TestReaderBroken(t *testing.T) {
	const document = `{"kind":"PodList","metadata":{"continue":"a\u0061"},"items":[{"a":1.5},{"b":[true,null]}]}`
	cut := errors.New("connection cut")
	for n := range len(document) {
		_, err := readAll(NewReader(strings.NewReader(document[:n])))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading %s: got error %v, want io.ErrUnexpectedEOF", document[:n], err)
		}
	}
	for n := range len(document) + 1 {
		_, err := readAll(NewReader(io.MultiReader(strings.NewReader(document[:n]), iotest.ErrReader(cut))))
		if !errors.Is(err, cut) {
			t.Errorf("reading %s: got error %v, want %v", document[:n], err, cut)
		}
	}
}

// TestReaderMemory holds the buffer to the largest item, not the list.
func TestReaderMemory(t *testing.T) {
	item := `{"a":"` + strings.Repeat("x", 20<<10) + `"}`
	l := NewReader(strings.NewReader(`{"items":[` + strings.Repeat(item+",", 500) + item + `]}`))
	for {
		_, err := l.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, want := cap(l.buffer), 4*firstBuffer; got > want {
			t.Fatalf("buffer: got %d bytes, want at most %d", got, want)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"a":"b\"c"},{}]}`,
		`{"kind":"Table","columnDefinitions":[{}],"rows":[{"cells":[1,-2e3,"\u00e4"]}]}`, `{"items":[{}],"kind":"X"} `, `[]`,
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, document []byte, chunk uint8) {
		l := NewReader(&chunks{document, int(chunk)%16 + 1})
		got, err := readAll(l)
		if err != io.EOF {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(document, &want); err != nil {
			t.Fatalf("reading %q: got io.EOF, want an error: %v", document, err)
		}
		items := want["items"]
		if rows, ok := want["rows"]; ok && l.seen["rows"] {
			items = rows
		}
		var wantItems []json.RawMessage
		if items != nil {
			if err := json.Unmarshal(items, &wantItems); err != nil {
				t.Fatalf("items of %q: %v", document, err)
			}
		}
		if diff := cmp.Diff(fmt.Sprintf("%s", wantItems), fmt.Sprintf("%s", got)); diff != "" {
			t.Fatalf("items of %q (-want +got):\n%s", document, diff)
		}
	})
}

// chunks reads data in pieces of a size.
type chunks struct {
	data []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(c.size, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}
