package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

var errOtherCluster = errors.New("the version is another cluster's")

func testRestorer() *Restorer {
	return &Restorer{
		Cluster:     "edge-7",
		Annotations: []string{testAnnotation, karmadaAnnotation},
		Version: func(view string) (string, error) {
			member, ok := strings.CutPrefix(view, testMemberPrefix)
			if !ok {
				return "", errOtherCluster
			}
			return member, nil
		},
	}
}

func TestRestoreJSON(t *testing.T) {
	const ours = `"` + testAnnotation + `":"edge-7","` + karmadaAnnotation + `":null`
	tests := map[string]struct{ body, want string }{
		"update": {
			`{"kind":"Pod","metadata":{"name":"a@edge-7","resourceVersion":"912","annotations":{` + ours + `,"x":"y"}},"spec":{}}`,
			`{"kind":"Pod","metadata":{"name":"a","resourceVersion":"12","annotations":{"x":"y"}},"spec":{}}`,
		},
		"only ours":          {`{"metadata":{"annotations":{` + ours + `},"uid":"u"}}`, `{"metadata":{"uid":"u"}}`},
		"empty annotations":  {`{"metadata":{"annotations":{}}}`, `{"metadata":{"annotations":{}}}`},
		"null version":       {`{"metadata":{"resourceVersion":null,"annotations":null}}`, `{"metadata":{"resourceVersion":null,"annotations":null}}`},
		"empty version":      {`{"metadata":{"resourceVersion":""}}`, `{"metadata":{"resourceVersion":""}}`},
		"null metadata":      {`{"metadata":null}`, `{"metadata":null}`},
		"no metadata":        {` {"spec":{"a":1}}`, ` {"spec":{"a":1}}`},
		"directive":          {`{"metadata":{"annotations":{"$patch":"replace",` + ours + `}}}`, `{"metadata":{"annotations":{"$patch":"replace"}}}`},
		"name of another":    {`{"metadata":{"name":"a@other"}}`, `{"metadata":{"name":"a@other"}}`},
		"preconditions":      {`{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"912"}}`, `{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"12"}}`},
		"null preconditions": {`{"kind":"DeleteOptions","preconditions":null}`, `{"kind":"DeleteOptions","preconditions":null}`},
		"eviction": {
			`{"deleteOptions":{"preconditions":{"resourceVersion":"912"}},"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a@edge-7"}}`,
			`{"deleteOptions":{"preconditions":{"resourceVersion":"12"}},"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`,
		},
		"preconditions of a custom resource": {`{"kind":"X","preconditions":{"resourceVersion":"912"}}`, `{"kind":"X","preconditions":{"resourceVersion":"912"}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := testRestorer().AppendJSON([]byte("before"), []byte(test.body))
			if err != nil {
				t.Fatalf("restoring %s: %v", test.body, err)
			}
			if diff := cmp.Diff("before"+test.want, string(got)); diff != "" {
				t.Errorf("restoring %s (-want +got):\n%s", test.body, diff)
			}
		})
	}
}

func TestRestoreYAML(t *testing.T) {
	for body, want := range map[string]string{
		"metadata:\n  name: a@edge-7\n  resourceVersion: \"912\"\n": `{"metadata":{"name":"a","resourceVersion":"12"}}`,
		`{"metadata": {"name": "a@edge-7"}}`:                        `{"metadata": {"name": "a"}}`,
		`{metadata: {name: a@edge-7}}`:                              `{"metadata":{"name":"a"}}`,
	} {
		got, err := testRestorer().AppendYAML(nil, []byte(body))
		if err != nil || string(got) != want {
			t.Errorf("restoring %q: got %s and error %v, want %s", body, got, err, want)
		}
	}
	options, err := testRestorer().AppendDeleteOptions(nil, []byte(`{"preconditions":{"resourceVersion":"912"}}`))
	if want := `{"preconditions":{"resourceVersion":"12"}}`; err != nil || string(options) != want {
		t.Errorf("restoring DeleteOptions: got %s and error %v, want %s", options, err, want)
	}
}

func TestRestoreRefuses(t *testing.T) {
	restorer := testRestorer()
	for _, body := range []string{
		`{"metadata":{"resourceVersion":"12"}}`, `{"kind":"DeleteOptions","preconditions":{"resourceVersion":"12"}}`,
		`{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":{"preconditions":{"resourceVersion":"12"}}}`,
	} {
		if got, err := restorer.AppendJSON(nil, []byte(body)); !errors.Is(err, errOtherCluster) || len(got) > 0 {
			t.Errorf("restoring %s: got %s and error %v, want %v", body, got, err, errOtherCluster)
		}
	}
	for _, body := range []string{
		`{"metadata":{},"metadata":{}}`, `[]`, `{"kind":"DeleteOptions","preconditions":{"resourceVersion":"91","resourceVersion":"92"}}`, `{"metadata":{"resourceVersion":1}}`,
	} {
		if got, err := restorer.AppendJSON(nil, []byte(body)); err == nil {
			t.Errorf("restoring %s: got %s, want an error", body, got)
		}
	}
	for _, body := range []string{
		`[{"op":"test","path":"/metadata/resourceVersion","value":"12"}]`, `{}`, `[1]`, `[{"op":1}]`,
		`[{"op":"test","path":"/metadata/annotations/clusterproxy.open-cluster-management.io~1cluster","value":"other"}]`,
		`[{"op":"move","from":"/metadata/annotations/clusterproxy.open-cluster-management.io~1cluster","path":"/a"}]`,
	} {
		if got, err := restorer.AppendJSONPatch(nil, []byte(body)); err == nil {
			t.Errorf("restoring %s: got %s, want an error", body, got)
		}
	}
}

func TestRestoreJSONPatch(t *testing.T) {
	const escaped = "/metadata/annotations/clusterproxy.open-cluster-management.io~1cluster"
	tests := map[string]struct{ patch, want string }{
		"version":     {`[{"op":"test","path":"/metadata/resourceVersion","value":"912"}]`, `[{"op":"test","path":"/metadata/resourceVersion","value":"12"}]`},
		"remove":      {`[{"op":"remove","path":"/metadata/resourceVersion"}]`, `[{"op":"remove","path":"/metadata/resourceVersion"}]`},
		"name":        {`[{"op":"test","path":"/metadata/name","value":"a@edge-7"}]`, `[{"op":"test","path":"/metadata/name","value":"a"}]`},
		"ours":        {`[{"op":"add","path":"` + escaped + `","value":"x"},{"op":"remove","path":"/a"}]`, `[{"op":"remove","path":"/a"}]`},
		"test ours":   {`[{"op":"test","path":"` + escaped + `","value":"edge-7"}]`, `[]`},
		"annotations": {`[{"op":"add","path":"/metadata/annotations","value":{"` + testAnnotation + `":"x","a":"b"}}]`, `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`},
		"only ours":   {`[{"op":"add","path":"/metadata/annotations","value":{"` + testAnnotation + `":"x"}}]`, `[{"op":"add","path":"/metadata/annotations","value":{}}]`},
		"metadata":    {`[{"op":"replace","path":"/metadata","value":{"resourceVersion":"912"}}]`, `[{"op":"replace","path":"/metadata","value":{"resourceVersion":"12"}}]`},
		"whole":       {`[{"op":"replace","path":"","value":{"metadata":{"resourceVersion":"912"}}}]`, `[{"op":"replace","path":"","value":{"metadata":{"resourceVersion":"12"}}}]`},
		"elsewhere":   {`[{"op":"add","path":"/spec/resourceVersion","value":12345678901234567890}]`, `[{"op":"add","path":"/spec/resourceVersion","value":12345678901234567890}]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := testRestorer().AppendJSONPatch(nil, []byte(test.patch))
			if err != nil {
				t.Fatalf("restoring %s: %v", test.patch, err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("restoring %s (-want +got):\n%s", test.patch, diff)
			}
		})
	}
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

func TestRestoreProtobuf(t *testing.T) {
	version := "912"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
	one := pod(1)
	rewritten := pod(1)
	changed(&rewritten, testRewriter(true))
	eviction := policyv1.Eviction{TypeMeta: metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"}, DeleteOptions: &options}
	member := "12"
	wantOptions, wantEviction := options, eviction
	wantOptions.Preconditions = &metav1.Preconditions{ResourceVersion: &member}
	wantEviction.DeleteOptions = &wantOptions
	for want, object := range map[runtime.Object]runtime.Object{&one: &rewritten, &wantOptions: &options, &wantEviction: &eviction} {
		var in, wanted bytes.Buffer
		if err := errors.Join(serializer.Encode(object, &in), serializer.Encode(want, &wanted)); err != nil {
			t.Fatal(err)
		}
		got, err := testRestorer().AppendProtobuf(nil, in.Bytes())
		if err != nil {
			t.Fatalf("restoring a %T: %v", object, err)
		}
		if diff := cmp.Diff(decodeWith(t, serializer, wanted.Bytes()), decodeWith(t, serializer, got)); diff != "" {
			t.Errorf("restoring a %T (-want +got):\n%s", object, diff)
		}
	}
	var other bytes.Buffer
	if err := serializer.Encode(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "12"}}, &other); err != nil {
		t.Fatal(err)
	}
	if got, err := testRestorer().AppendProtobuf(nil, other.Bytes()); !errors.Is(err, errOtherCluster) || len(got) > 0 {
		t.Errorf("restoring another cluster's version: got %q and error %v, want %v", got, err, errOtherCluster)
	}
}

func decodeWith(t *testing.T, serializer *protobuf.Serializer, document []byte) runtime.Object {
	t.Helper()
	object, _, err := serializer.Decode(document, nil, nil)
	if err != nil {
		t.Fatalf("decoding %q: %v", document, err)
	}
	return object
}

// FuzzRestore rewrites an object and restores it: it is the object without our annotations.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"kind":"DeleteOptions","metadata":{"name":"a@edge-7","annotations":{}},"preconditions":{"resourceVersion":"91"}}`))
	f.Add([]byte(`[{"op":"test","path":"/metadata/resourceVersion","value":"91"}]`))
	f.Add([]byte(`{"metadata":{"name":"a","annotations":{"a":"b"},"resourceVersion":"1"}}`))
	f.Add([]byte(`{"metadata":{"name":"a","namespace":"s","ownerReferences":[{"name":"o"}]},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"spec":{"containers":[{"name":"a@edge-7"}]}}}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"` + appliedAnnotation + `":"{\"metadata\":{\"name\":\"a\"}}\n"}},"spec":{"selector":{"matchExpressions":[{}]}}}`))
	f.Add([]byte(`[{"op":"test","path":"/spec/selector/matchLabels/a","value":"b"},{"op":"add","path":"/metadata/ownerReferences/-","value":{"name":"x@edge-7"}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzPlaces(t, body)
		r := testRestorer()
		_, _ = r.AppendJSONPatch(nil, body)
		_, _ = r.AppendDeleteOptions(nil, body)
		_, _ = r.AppendProtobuf(nil, body)
		view, err := testRewriter(true).AppendJSON(nil, body)
		if err != nil || bytes.Contains(body, []byte("reconditions")) {
			return
		}
		got, err := r.AppendJSON(nil, view)
		if err != nil {
			return // kind or apiVersion is no string, or is given twice
		}
		want, wantErr := KeyOfJSON(body)
		key, err := KeyOfJSON(got)
		if wantErr == nil && (err != nil || key != want) {
			t.Fatalf("restoring %q: got %+v and error %v, want %+v", view, key, err, want)
		}
		if bytes.Contains(got, []byte(`"`+karmadaAnnotation+`":"edge-7"`)) && !bytes.Contains(body, []byte(karmadaAnnotation)) {
			t.Fatalf("restoring %q gave %q, with our annotation", view, got)
		}
	})
}

// fuzzPlaces rewrites and restores an object with selectors. The rest says no more of the
// cluster than the original did, and restoring it again changes nothing.
func fuzzPlaces(t *testing.T, body []byte) {
	w, r := leading("apps", "deployments", "")
	_, _ = r.AppendJSONPatch(nil, body)
	_, _ = r.AppendProtobuf(nil, body)
	view, err := w.AppendJSON(nil, body)
	if err != nil || bytes.Contains(body, []byte("reconditions")) {
		return
	}
	got, err := r.AppendJSON(nil, view)
	if err != nil {
		return // kind or apiVersion is no string, or is given twice
	}
	if bytes.Contains(got, []byte(`"`+testAnnotation+`":"edge-7"`)) && !bytes.Contains(body, []byte("cluster")) {
		t.Fatalf("restoring %q gave %q, with our label", view, got)
	}
	if bytes.Contains(got, []byte("@edge-7")) && !bytes.ContainsAny(body, `@\`) {
		t.Fatalf("restoring %q gave %q, with our cluster", view, got)
	}
	if !json.Valid(got) {
		t.Fatalf("restoring %q gave %q, which is no JSON", view, got)
	}
}
