package httprelay

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

var errCut = errors.New("cut off")

func TestCoalesce(t *testing.T) {
	long := strings.Repeat("0123456789", Chunk/4)
	for _, tc := range []struct {
		name, kind string
		body       io.Reader
		want       string
		length     int64
		first      int // bytes of the first Read
		err        error
	}{
		{name: "short", kind: "application/json; charset=utf-8", body: strings.NewReader("abc"), want: "abc", length: 3, first: 3},
		{name: "empty", kind: "application/json", body: strings.NewReader(""), length: 0},
		{name: "short, as it comes", kind: "application/cbor", body: iotest.OneByteReader(strings.NewReader("abc")), want: "abc", length: 3, first: 3},
		{name: "long", kind: "application/json", body: iotest.HalfReader(strings.NewReader(long)), want: long, length: -1, first: Chunk},
		{name: "cut off", kind: "application/json", body: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(errCut)), want: "abc", length: -1, first: 3, err: errCut},
		{name: "cut off by HTTP", kind: "application/json", body: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(io.ErrUnexpectedEOF)), want: "abc", length: -1, first: 3, err: io.ErrUnexpectedEOF},
		{name: "long, cut off", kind: "application/json", body: io.MultiReader(strings.NewReader(long), iotest.ErrReader(io.ErrUnexpectedEOF)), want: long, length: -1, first: Chunk, err: io.ErrUnexpectedEOF},
		{name: "events", kind: "application/vnd.kubernetes.protobuf;stream=watch", body: iotest.OneByteReader(strings.NewReader("abc")), want: "abc", length: -1, first: 1},
		{name: "logs", kind: "text/plain", body: iotest.OneByteReader(strings.NewReader("abc")), want: "abc", length: -1, first: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {tc.kind}}, ContentLength: -1, Body: io.NopCloser(tc.body)}
				Coalesce(resp)
				defer resp.Body.Close()
				p := make([]byte, Chunk)
				n, err := resp.Body.Read(p)
				if n != tc.first {
					t.Errorf("the first Read gives %d bytes, want %d", n, tc.first)
				}
				got := string(p[:n])
				if err == nil {
					var rest []byte
					rest, err = io.ReadAll(resp.Body)
					got += string(rest)
				}
				if err == io.EOF {
					err = nil
				}
				if got != tc.want || err != tc.err || resp.ContentLength != tc.length {
					t.Errorf("%d bytes, %v, length %d; want %d, %v, %d", len(got), err, resp.ContentLength, len(tc.want), tc.err, tc.length)
				}
			})
		})
	}
}

// TestCoalescePassesOnWhatComesBitByBit has answers that say that they are documents
// and come as events do.
func TestCoalescePassesOnWhatComesBitByBit(t *testing.T) {
	for name, tc := range map[string]struct {
		writes []string
		want   []string // pieces that are read, each soon after it was written
	}{
		"one object after the other": {[]string{"one", "two", "three", "four"}, []string{"one", "two", "three", "four"}},
		"a long one first":           {[]string{strings.Repeat("x", Chunk), "two", "three"}, []string{strings.Repeat("x", Chunk), "two", "three"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				began := time.Now()
				go func() {
					for i, text := range tc.writes {
						time.Sleep(time.Until(began.Add(time.Duration(i) * time.Minute)))
						_, _ = io.WriteString(w, text)
					}
					time.Sleep(time.Minute)
					_ = w.CloseWithError(errCut)
				}()
				resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1, Body: r}
				Coalesce(resp)
				p := make([]byte, Chunk)
				for i, want := range tc.want {
					n, err := resp.Body.Read(p)
					late := time.Since(began) - time.Duration(i)*time.Minute
					if string(p[:n]) != want || err != nil || late > 2*pause {
						t.Errorf("read %d bytes, %v after %s; want %d", n, err, late, len(want))
					}
				}
				if n, err := resp.Body.Read(p); n != 0 || err != errCut {
					t.Errorf("the end: %d bytes, %v, want 0 and %v", n, err, errCut)
				}
				_ = resp.Body.Close()
			})
		})
	}
}

// flushes counts them.
type flushes struct {
	*httptest.ResponseRecorder
	n int
}

func (f *flushes) FlushError() error { f.n++; return nil }

func TestNoFinalFlush(t *testing.T) {
	for _, tc := range []struct {
		length string
		writes []string
		want   int
	}{
		{"3", []string{"abc"}, 0},
		{"6", []string{"abc", "def"}, 1},
		{"6", []string{"abc"}, 1},
		{"", []string{"abc", "def"}, 2},
		{"x", []string{"abc"}, 1},
	} {
		f := &flushes{ResponseRecorder: httptest.NewRecorder()}
		w := NoFinalFlush(f)
		if tc.length != "" {
			w.Header().Set("Content-Length", tc.length)
		}
		w.WriteHeader(http.StatusOK)
		for _, text := range tc.writes {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if f.n != tc.want {
			t.Errorf("Content-Length %q, %q: %d flushes, want %d", tc.length, tc.writes, f.n, tc.want)
		}
	}
}
