package merge

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// protobufSerializer encodes and decodes as kube-apiservers and client-go do.
func protobufSerializer(tb testing.TB) *protobuf.Serializer {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	return protobuf.NewSerializer(scheme, scheme)
}

func encode(tb testing.TB, object runtime.Object) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := protobufSerializer(tb).Encode(object, &b); err != nil {
		tb.Fatalf("encoding %T: %v", object, err)
	}
	return b.Bytes()
}

func decode(tb testing.TB, document []byte) runtime.Object {
	tb.Helper()
	object, _, err := protobufSerializer(tb).Decode(document, nil, nil)
	if err != nil {
		tb.Fatalf("decoding %.200q: %v", document, err)
	}
	return object
}

// changed makes the Rewriter's change to an object.
func changed(object metav1.Object, w *Rewriter) {
	annotations := map[string]string{}
	for key, value := range object.GetAnnotations() {
		annotations[key] = value
	}
	for _, name := range w.Annotations {
		annotations[name] = w.Cluster
	}
	object.SetAnnotations(annotations)
	if object.GetName() != "" && w.Qualified {
		object.SetName(object.GetName() + "@" + w.Cluster)
	}
	if version := object.GetResourceVersion(); version != "" {
		object.SetResourceVersion(w.Version(version))
	}
}

func testObjects() []runtime.Object {
	one := pod(1)
	claims := metav1.ObjectMeta{Name: "a", Namespace: "b", ResourceVersion: "3", Annotations: map[string]string{testAnnotation: "x", "a": "b"}}
	return []runtime.Object{
		&one,
		&corev1.Event{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}, ObjectMeta: claims, InvolvedObject: corev1.ObjectReference{Name: "x"}},
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: claims, BinaryData: map[string][]byte{"a": {0, 1}}},
		&corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}},
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: claims},
	}
}

func TestRewriteProtobuf(t *testing.T) {
	for _, object := range testObjects() {
		for _, qualified := range []bool{false, true} {
			t.Run(fmt.Sprintf("%T %v", object, qualified), func(t *testing.T) {
				w := testRewriter(qualified)
				document := encode(t, object)
				got, err := w.AppendProtobuf([]byte("before"), document)
				if err != nil {
					t.Fatal(err)
				}
				want := decode(t, document)
				changed(want.(metav1.Object), w)
				if diff := cmp.Diff(want, decode(t, bytes.TrimPrefix(got, []byte("before")))); diff != "" {
					t.Errorf("rewritten (-want +got):\n%s", diff)
				}
				meta := object.(metav1.Object)
				kind := object.GetObjectKind().GroupVersionKind()
				wantKey := Key{
					APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: meta.GetNamespace(),
					Name: meta.GetName(), UID: string(meta.GetUID()), Version: meta.GetResourceVersion(),
				}
				if key, err := KeyOfProtobuf(document); err != nil || key != wantKey {
					t.Errorf("key: got %+v and error %v, want %+v", key, err, wantKey)
				}
			})
		}
	}
}

func TestProtobufList(t *testing.T) {
	seven := int64(7)
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "c", RemainingItemCount: &seven}, Items: pods(3),
	}
	meta, items, err := ReadProtobufList(encode(t, list))
	if err != nil {
		t.Fatal(err)
	}
	wantMeta := ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "5", Continue: "c", RemainingItemCount: &seven}
	if diff := cmp.Diff(wantMeta, meta); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	w := testRewriter(true)
	for i, item := range items {
		if items[i], err = w.AppendProtobufItem(nil, item); err != nil {
			t.Fatal(err)
		}
	}
	want := decode(t, encode(t, list)).(*corev1.PodList)
	for i := range want.Items {
		changed(&want.Items[i], w)
	}
	if diff := cmp.Diff(want, decode(t, AppendProtobufList(nil, meta, items))); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	status := encode(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Message: "no"})
	_, _, err = ReadProtobufList(status)
	if not, ok := err.(*NotListError); !ok || not.Kind != "Status" || !bytes.Equal(not.Beginning, status) {
		t.Errorf("reading a Status as a list: got error %v, want a NotListError with it", err)
	}
	if _, err := w.AppendProtobuf(nil, status); err == nil {
		t.Error("rewriting a Status: got no error, want one")
	}
}

func FuzzProtobuf(f *testing.F) {
	for _, object := range testObjects() {
		f.Add(encode(f, object))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		w := testRewriter(true)
		got, err := w.AppendProtobuf(nil, document)
		_, _, _ = ReadProtobufList(document)
		if err != nil {
			return
		}
		key, err := KeyOfProtobuf(document)
		if err != nil {
			return
		}
		want := key
		if want.Name != "" {
			want.Name += "@edge-7"
		}
		if want.Version != "" {
			want.Version = w.Version(want.Version)
		}
		if key, err := KeyOfProtobuf(got); err != nil || key != want {
			t.Fatalf("key of the rewritten %q: got %+v and error %v, want %+v", document, key, err, want)
		}
	})
}
