package feed

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessages(t *testing.T) {
	want := []*Message{
		{},
		{Resource: pods.Resource, Definition: &pods},
		{Resource: pods.Resource, Gone: []Key{{"a", "b"}}, GoneUIDs: []uint64{1<<64 - 1}, Version: "7", Synced: true},
		{Resource: pods.Resource},
	}
	for range MaxRows {
		want[3].Put = append(want[3].Put, pod())
	}
	var stream bytes.Buffer
	w := NewWriter(&stream)
	for _, m := range want {
		if err := w.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	if stream.Len() > 10_000 {
		t.Errorf("%d equal rows take %d bytes", MaxRows, stream.Len())
	}
	whole := stream.Bytes()
	r := NewReader(bytes.NewReader(whole))
	for i, m := range want {
		got, err := r.Read()
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("message %d: %v %s", i, err, diff)
		}
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %v", err)
	}
	r = NewReader(bytes.NewReader(whole[:len(whole)-1]))
	for range 3 {
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: got %v", err)
	}
}

func frame(kind byte, content string) string {
	return string(append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), kind)) + content
}

func TestReaderRefuses(t *testing.T) {
	var bomb bytes.Buffer
	z, err := flate.NewWriter(&bomb, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(z, zeros{}, maxMessage+1); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ stream, want string }{
		"a length of gigabytes": {"\xff\xff\xff\xff\x00", "none of a feed's"},
		"another kind":          {frame(2, "{}"), "none of a feed's"},
		"a bomb":                {frame(1, bomb.String()), "more than"},
		"no JSON":               {frame(0, "x"), "parsing"},
		"not compressed":        {frame(1, "x"), "unpacking"},
		"many rows":             {frame(0, `{"put":[`+strings.Repeat(`{},`, MaxRows)+`{}]}`), "501"},
		"a name of NUL":         {frame(0, `{"put":[{"name":"a\u0000"}]}`), "control characters"},
		"a key with an escape":  {frame(0, `{"gone":[{"name":"\u001b[2J"}]}`), "control characters"},
		"a version of words":    {frame(0, `{"version":"1; DROP"}`), "resourceVersion"},
		"many keys":             {frame(0, `{"gone":[`+strings.Repeat(`{},`, MaxRows)+`{}]}`), "501"},
	} {
		if m, err := NewReader(strings.NewReader(c.stream)).Read(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want %q", name, m, err, c.want)
		}
	}
	evil := frame(0, `{"incomplete":"`+strings.Repeat(`\u001b[2J`, MaxText)+`"}`)
	if m, err := NewReader(strings.NewReader(evil)).Read(); err != nil || len(m.Incomplete) != MaxText || strings.Contains(m.Incomplete, "\x1b") {
		t.Errorf("a reason with escapes: got %v, %v", m, err)
	}
	if _, err := ReadRequest(io.LimitReader(zeros{}, MaxRequest+10)); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("a long request: got %v", err)
	}
	if request, err := ReadRequest(strings.NewReader(`{"resources":[{"resource":"pods","digests":{"a":18446744073709551615}}]}`)); err != nil || fmt.Sprint(request.Resources[0].Digests) != "map[a:18446744073709551615]" {
		t.Errorf("got %v, %v", request, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
