package merge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// indexed are objects in which an index may err.
var indexed = []string{
	`{}`, ` { } `, `{"metadata":{}}`, `{"metadata":null}`, `{"metadata":[{"name":"a"}]}`, `{"metadata":"name"}`, `{"x":{"metadata":{"name":"a"}}}`,
	`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"7"},"spec":{"a":[{"metadata":{"name":"x"}},{}]}}`,
	"{ \"a\" : 1 ,\n\"metadata\" : { \"name\" : \"a\" , \"annotations\" : { \"x\" : \"y\" } , \"ownerReferences\" : [ { \"name\" : \"o\" } ] } , \"b\" : [ ] }\n",
	`{"metadata":{"managedFields":[{"fieldsV1":{"f:metadata":{"f:name":{},"k:{\"name\":\"x\"}":{}}}}],"name":"a"},"status":{"metadata":{"name":"b"}}}`,
	`{"metadata":{"name":"a"},"metadata":{"name":"b"}}`, `{"metadata":{"name":"a","name":"b"}}`, `{"metadata":{},"metadata":{}}`, `{"kind":"a","kind":"b"}`,
	`{"met\u0061data":{"name":"a"}}`, `{"metadata":{"n\u0061me":"a"}}`, `{"a\\":{},"metadata":{"name":"a"}}`, `{"metadata":{"name":"a"},"x\"":1}`,
	`{"Metadata":{"name":"b"},"metadata":{"name":"a"}}`, `{"metadata":{"Name":"b","name":"a","Annotations":{}}}`, `{"metadata":{"labels":{"name":"b"},"name":"a"}}`,
	`{"object":{"metadata":{"name":"a"}},"metadata":{"name":"b"}}`, `{"metadata":{"name":7}}`, `{"metadata":{"resourceVersion":{}}}`,
	`{` + strings.Repeat(`"x":1,`, 2*maxMembers) + `"metadata":{"name":"a"}}`, `{"metadata":{` + strings.Repeat(`"x":1,`, 2*maxMembers) + `"name":"a"}}`,
	`{"a":{"b":{"c":{}}},"metadata":{"name":"a"},"z":{"y":[[]]}}`,
}

// checkIndexed compares what is made of an Item with what is made of its text.
func checkIndexed(t *testing.T, item Item) {
	t.Helper()
	for _, qualified := range []bool{false, true} {
		w := testRewriter(qualified)
		want, wantErr := w.AppendJSON(nil, item.JSON())
		got, err := w.AppendItem(nil, item)
		if diff := cmp.Diff(string(want), string(got)); diff != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("rewriting %q: got error %v, want %v (-want +got):\n%s", item.JSON(), err, wantErr, diff)
		}
	}
	want, wantErr := KeyOfJSON(item.JSON())
	if got, err := KeyOfItem(item); got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("the key of %q: got %v and error %v, want %v and %v", item.JSON(), got, err, want, wantErr)
	}
}

func TestIndexer(t *testing.T) {
	var x Indexer
	for _, object := range indexed {
		item, err := x.Item([]byte(object))
		if err != nil {
			t.Fatalf("reading %q: %v", object, err)
		}
		checkIndexed(t, item)
	}
	for _, object := range []string{``, ` `, `[]`, `"a"`, `{`, `{"a":1`, `{}x`, `{} {}`, `{"a" 1}`} {
		if item, err := x.Item([]byte(object)); err == nil {
			t.Errorf("reading %q: got %q, want an error", object, item.JSON())
		}
	}
}

// TestIndexOfReader reads items that arrive in pieces, and moves them in the buffer.
func TestIndexOfReader(t *testing.T) {
	filler := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", firstBuffer/2-40))
	var items []string
	for _, object := range indexed {
		items = append(items, filler, strings.TrimSpace(object))
	}
	for _, size := range []int{1, 7, 4096} {
		l := NewReader(&chunks{[]byte(`{"items":[` + strings.Join(items, ",") + `]}`), size})
		for _, want := range items {
			item, err := l.Next()
			if err != nil || string(item.JSON()) != want {
				t.Fatalf("in pieces of %d: got %q and error %v, want %q", size, item.JSON(), err, want)
			}
			checkIndexed(t, item)
		}
	}
}

// TestIndexOfRows compares rows that a Reader has read with their text.
func TestIndexOfRows(t *testing.T) {
	var rows []string
	for _, object := range indexed {
		rows = append(rows, `{"cells":["a",1],"object":`+object+`,"conditions":[]}`, `{"object":`+object+`, "Object":{},"cells":[]}`)
	}
	rows = append(rows, `{"cells":[],"object":null}`, `{"cells":[],"object":[]}`, `{"cells":[],"object":{},"object":{}}`, `{"object":{"metadata":{}},"cells":[],"metadata":{}}`, `{}`)
	l := NewReader(strings.NewReader(`{"columnDefinitions":[{"name":"Name","format":"name"}],"rows":[` + strings.Join(rows, ",") + `]}`))
	for _, row := range rows {
		item, err := l.Next()
		if err != nil {
			t.Fatalf("reading %q: %v", row, err)
		}
		var table Table
		layout, err := table.Add(l.Columns())
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := layout.AppendRow(nil, NewItem(item.JSON()), testRewriter(true))
		got, err := layout.AppendRow(nil, item, testRewriter(true))
		if diff := cmp.Diff(string(want), string(got)); diff != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("row %q: got error %v, want %v (-want +got):\n%s", row, err, wantErr, diff)
		}
		wantKey, wantErr := KeyOfRow(NewItem(item.JSON()))
		if key, err := KeyOfRow(item); key != wantKey || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("the key of row %q: got %v and error %v, want %v and %v", row, key, err, wantKey, wantErr)
		}
	}
}

func FuzzIndexer(f *testing.F) {
	for _, object := range indexed {
		f.Add([]byte(object))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var x Indexer
		if item, err := x.Item(object); err == nil {
			checkIndexed(t, item)
		}
	})
}
