package merge

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestProtobufReader(t *testing.T) {
	seven := int64(7)
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "c", RemainingItemCount: &seven}, Items: pods(3),
	}
	document := encode(t, list)
	for _, stream := range []io.Reader{bytes.NewReader(document), iotest.OneByteReader(bytes.NewReader(document))} {
		reader := NewProtobufReader(stream)
		for i := range list.Items {
			item, err := reader.Next()
			if err != nil {
				t.Fatalf("item %d: %v", i, err)
			}
			want := list.Items[i].DeepCopy()
			want.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			if diff := cmp.Diff(decode(t, encode(t, want)), decode(t, item)); diff != "" {
				t.Errorf("item %d (-want +got):\n%s", i, diff)
			}
		}
		for range 2 {
			if item, err := reader.Next(); err != io.EOF {
				t.Errorf("behind the items: got %q and error %v, want EOF", item, err)
			}
		}
		wantMeta := ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "5", Continue: "c", RemainingItemCount: &seven}
		if diff := cmp.Diff(wantMeta, reader.Meta()); diff != "" {
			t.Errorf("meta (-want +got):\n%s", diff)
		}
	}
	for n := range document[:len(document)-1] {
		reader := NewProtobufReader(bytes.NewReader(document[:n]))
		var err error
		for err == nil {
			_, err = reader.Next()
		}
		// An envelope without an encoding and a content type is whole, too.
		if err == io.EOF && n < len(document)-4 {
			t.Errorf("the first %d bytes of %d: got all of the list, want an error", n, len(document))
		}
	}
}

func TestProtobufReaderRefuses(t *testing.T) {
	status := encode(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Message: "no"})
	for _, document := range [][]byte{status, []byte(`{"kind":"PodList","items":[]}`), {}} {
		_, err := NewProtobufReader(bytes.NewReader(document)).Next()
		if not, ok := err.(*NotListError); !ok || !bytes.Equal(not.Beginning, document) {
			t.Errorf("reading %q as a list: got error %v, want a NotListError with it", document, err)
		}
	}
	of := metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
	for name, list := range map[string][]byte{
		"huge item":                    protowire.AppendVarint(protowire.AppendTag(nil, listItems, protowire.BytesType), maxItem+1),
		"item is longer than the list": protowire.AppendVarint(protowire.AppendTag(nil, listItems, protowire.BytesType), 100),
		"metadata twice":               {1<<3 | 2, 0, 1<<3 | 2, 0}, "items are numbers": {2 << 3, 0}, "group": {3<<3 | 3}, "field 0": {2, 0}, "cut off": {2 << 3},
		"varint": bytes.Repeat([]byte{0xff}, 11),
	} {
		item, err := NewProtobufReader(bytes.NewReader(AppendProtobufDocument(nil, of, list))).Next()
		if err == nil || err == io.EOF {
			t.Errorf("%s: got item %q and error %v, want an error", name, item, err)
		}
	}
	untyped := AppendProtobufDocument(nil, metav1.TypeMeta{Kind: "PodList"}, []byte{2<<3 | 2, 0})
	if item, err := NewProtobufReader(bytes.NewReader(untyped)).Next(); err == nil {
		t.Errorf("a list without apiVersion: got item %q, want an error", item)
	}
	two := append(AppendProtobufDocument(nil, of, nil), 2<<3|2, 0)
	if _, err := NewProtobufReader(bytes.NewReader(two)).Next(); err == nil || err == io.EOF {
		t.Errorf("two lists: got error %v, want an error", err)
	}
}

func TestProtobufEvent(t *testing.T) {
	object := testObjects()[0]
	document := encode(t, object)
	event := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: document}}
	want, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := AppendProtobufEvent(nil, "ADDED", document)
	if !bytes.Equal(got, want) {
		t.Errorf("writing an event: got %.100q, want %.100q", got, want)
	}
	if kind, read, err := ReadProtobufEvent(got); err != nil || kind != "ADDED" || !bytes.Equal(read, document) {
		t.Errorf("reading an event: got %q, %.100q and error %v", kind, read, err)
	}
	for _, event := range [][]byte{{}, {1<<3 | 2, 0}, {2<<3 | 2, 0}, {2<<3 | 2, 2, 1<<3 | 2, 9}, append(got, 1<<3|2, 0), append(got, 2<<3|2, 0), {1 << 3, 0}} {
		if kind, document, err := ReadProtobufEvent(event); err == nil {
			t.Errorf("event %.100q: got %q, %q, want an error", event, kind, document)
		}
	}
}

func TestReadStatus(t *testing.T) {
	want := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Message: "no", Code: 403}
	inJSON, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range [][]byte{inJSON, encode(t, &want)} {
		if got, err := ReadStatus(document); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%q: got %v and error %v, want %v", document, got, err, want)
		}
	}
	for _, document := range [][]byte{{}, []byte("no"), []byte(`{"kind":"Pod"}`), encode(t, testObjects()[0]), AppendProtobufDocument(nil, want.TypeMeta, []byte{9})} {
		if got, err := ReadStatus(document); err == nil || got.Message != "" {
			t.Errorf("%.100q: got %v, want an error", document, got)
		}
	}
}

func FuzzProtobufReader(f *testing.F) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, Items: make([]metav1.PartialObjectMetadata, 2)}
	list.ResourceVersion, list.Items[0].Name = "5", "x"
	f.Add(encode(f, list))
	f.Add(AppendProtobufDocument(nil, metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, []byte{1<<3 | 2, 0, 2<<3 | 2, 1, 8}))
	f.Fuzz(func(t *testing.T, document []byte) {
		_, _, _ = ReadProtobufEvent(document)
		_, _ = ReadStatus(document)
		reader := NewProtobufReader(bytes.NewReader(document))
		var items [][]byte
		var err error
		for err == nil {
			var item []byte
			if item, err = reader.Next(); err == nil {
				items = append(items, bytes.Clone(item))
			}
		}
		if err != io.EOF {
			return
		}
		meta, raw, err := ReadProtobufList(document)
		if err != nil {
			t.Fatalf("ReadProtobufList does not read what ProtobufReader reads: %v", err)
		}
		if diff := cmp.Diff(meta, reader.Meta()); diff != "" || len(raw) != len(items) {
			t.Fatalf("got %d items and meta (-ReadProtobufList +ProtobufReader):\n%s\nwant %d items", len(items), diff, len(raw))
		}
		for i, item := range items {
			if e, err := openEnvelope(item); err != nil || !bytes.Equal(e.raw, raw[i]) {
				t.Fatalf("item %d: got %q and error %v, want %q in an envelope", i, item, err, raw[i])
			}
		}
	})
}
