package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// requests are of every kind; they change nothing, so that each endpoint finds the
// same cluster. Lists without a version name the newest in the cluster, which others'
// writes change: where the comparison cannot leave it out, they are of version.
func requests(t *testing.T, ns, pod, node, version string) []suite.Request {
	t.Helper()
	maps := "/api/v1/namespaces/" + ns + "/configmaps"
	exact := maps + "?labelSelector=e2e&resourceVersionMatch=Exact&resourceVersion=" + version
	const dry = "dryRun=All"
	object := func(name, data string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"a":%q}}`, name, ns, data)
	}
	inProtobuf, inCBOR := encodings(t, ns)
	many := http.Header{}
	for i := range 1000 {
		many.Set(fmt.Sprint("X-E2e-", i), strings.Repeat("x", 40))
	}
	return []suite.Request{
		{Name: "list", Method: "GET", Path: maps + "?labelSelector=e2e"},
		{Name: "list in parts", Method: "GET", Path: maps + "?labelSelector=e2e&limit=1"},
		{Name: "list as Table", Method: "GET", Path: maps + "?labelSelector=e2e", Header: suite.Accept("application/json;as=Table;v=v1;g=meta.k8s.io")},
		{Name: "list as metadata", Method: "GET", Path: maps + "?labelSelector=e2e", Header: suite.Accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")},
		{Name: "list as protobuf", Method: "GET", Path: exact, Header: suite.Accept("application/vnd.kubernetes.protobuf")},
		{Name: "list as CBOR", Method: "GET", Path: maps + "?labelSelector=e2e", Header: suite.Accept("application/cbor")},
		{Name: "list as YAML", Method: "GET", Path: exact, Header: suite.Accept("application/yaml")},
		{Name: "list as nothing known", Method: "GET", Path: maps, Header: suite.Accept("image/png")},
		{Name: "list with gzip", Method: "GET", Path: "/openapi/v2", Header: http.Header{"Accept-Encoding": {"gzip"}}},
		{Name: "get", Method: "GET", Path: maps + "/one"},
		{Name: "get what is not there", Method: "GET", Path: maps + "/none"},
		{Name: "head", Method: "HEAD", Path: maps + "/one"},
		{Name: "watch", Method: "GET", Path: maps + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=one"},
		{Name: "watch from long ago", Method: "GET", Path: maps + "?watch=1&timeoutSeconds=1&resourceVersion=1"},
		{Name: "a bad selector", Method: "GET", Path: maps + "?labelSelector=%21%21"},
		{Name: "a bad limit", Method: "GET", Path: maps + "?limit=many"},
		{Name: "create", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: object("new", "b")},
		{Name: "create from YAML", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/yaml"), Body: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n"},
		{Name: "create from protobuf", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/vnd.kubernetes.protobuf"), Body: inProtobuf},
		{Name: "create from CBOR", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/cbor"), Body: inCBOR},
		{Name: "create from half a protobuf", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/vnd.kubernetes.protobuf"), Body: inProtobuf[:len(inProtobuf)/2]},
		{Name: "create what is there", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: object("one", "b")},
		{Name: "create something else", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"}}`},
		{Name: "create nonsense", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: `{`},
		{Name: "create a bad name", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: object("Not A Name", "b")},
		{Name: "create with an unknown field", Method: "POST", Path: maps + "?" + dry + "&fieldValidation=Strict", Header: suite.Content("application/json"), Body: strings.Replace(object("new", "b"), `"data"`, `"date":1,"data"`, 1)},
		{Name: "create with a warning", Method: "POST", Path: maps + "?" + dry + "&fieldValidation=Warn", Header: suite.Content("application/json"), Body: strings.Replace(object("new", "b"), `"data"`, `"date":1,"data"`, 1)},
		{Name: "create something big", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: object("new", strings.Repeat("b", 900<<10))},
		{Name: "create something too big", Method: "POST", Path: maps + "?" + dry, Header: suite.Content("application/json"), Body: object("new", strings.Repeat("b", 4<<20))},
		{Name: "update", Method: "PUT", Path: maps + "/one?" + dry, Header: suite.Content("application/json"), Body: object("one", "c")},
		{Name: "update with a conflict", Method: "PUT", Path: maps + "/one?" + dry, Header: suite.Content("application/json"), Body: strings.Replace(object("one", "c"), `"name"`, `"resourceVersion":"1","name"`, 1)},
		{Name: "update a collection", Method: "PUT", Path: maps, Header: suite.Content("application/json"), Body: object("one", "c")},
		{Name: "JSON patch", Method: "PATCH", Path: maps + "/one?" + dry, Header: suite.Content("application/json-patch+json"), Body: `[{"op":"add","path":"/data/b","value":"1"}]`},
		{Name: "merge patch", Method: "PATCH", Path: maps + "/one?" + dry, Header: suite.Content("application/merge-patch+json"), Body: `{"data":{"b":"1"}}`},
		{Name: "strategic merge patch", Method: "PATCH", Path: maps + "/one?" + dry, Header: suite.Content("application/strategic-merge-patch+json"), Body: `{"data":{"b":"1"}}`},
		{Name: "apply", Method: "PATCH", Path: maps + "/one?fieldManager=e2e&force=true&" + dry, Header: suite.Content("application/apply-patch+yaml"), Body: object("one", "d")},
		{Name: "apply with a conflict", Method: "PATCH", Path: maps + "/one?fieldManager=e2e&" + dry, Header: suite.Content("application/apply-patch+yaml"), Body: object("one", "d")},
		{Name: "apply something new", Method: "PATCH", Path: maps + "/new?fieldManager=e2e&" + dry, Header: suite.Content("application/apply-patch+yaml"), Body: object("new", "d")},
		{Name: "apply without a manager", Method: "PATCH", Path: maps + "/one?" + dry, Header: suite.Content("application/apply-patch+yaml"), Body: object("one", "d")},
		{Name: "apply from CBOR", Method: "PATCH", Path: maps + "/one?fieldManager=e2e&" + dry, Header: suite.Content("application/apply-patch+cbor"), Body: inCBOR},
		{Name: "a patch of no kind", Method: "PATCH", Path: maps + "/one?" + dry, Header: suite.Content("text/plain"), Body: `{}`},
		{Name: "delete", Method: "DELETE", Path: maps + "/one?" + dry},
		{Name: "delete what is not there", Method: "DELETE", Path: maps + "/none?" + dry},
		{Name: "delete a collection", Method: "DELETE", Path: maps + "?labelSelector=e2e&" + dry},
		// Its beginning; the end is another one each second.
		{Name: "logs", Method: "GET", Path: "/api/v1/namespaces/default/pods/" + pod + "/log?limitBytes=20"},
		{Name: "logs of no container", Method: "GET", Path: "/api/v1/namespaces/default/pods/" + pod + "/log?container=none"},
		{Name: "exec without an upgrade", Method: "POST", Path: "/api/v1/namespaces/default/pods/" + pod + "/exec?command=true&stdout=1"},
		{Name: "a pod by its proxy", Method: "GET", Path: "/api/v1/namespaces/default/pods/" + pod + ":8080/proxy/"},
		{Name: "a Service by its proxy", Method: "GET", Path: "/api/v1/namespaces/default/services/none/proxy/"},
		{Name: "a node by its proxy", Method: "GET", Path: "/api/v1/nodes/" + node + "/proxy/healthz"},
		{Name: "a long header", Method: "GET", Path: maps + "/one", Header: http.Header{"X-E2e": {strings.Repeat("x", 60<<10)}}},
		{Name: "many headers", Method: "GET", Path: maps + "/one", Header: many},
		{Name: "a long selector", Method: "GET", Path: maps + "?labelSelector=e2e" + strings.Repeat(",e2e", 14<<10)},
		{Name: "version", Method: "GET", Path: "/version"},
		{Name: "discovery", Method: "GET", Path: "/apis"},
		{Name: "aggregated discovery", Method: "GET", Path: "/apis", Header: suite.Accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")},
		{Name: "OpenAPI", Method: "GET", Path: "/openapi/v3/api/v1"},
		{Name: "no such API", Method: "GET", Path: "/apis/example.org/v1/things"},
		{Name: "no such path", Method: "GET", Path: "/no/such/path?a=b"},
	}
}

// encodings are of one ConfigMap.
func encodings(t *testing.T, ns string) (inProtobuf, inCBOR string) {
	t.Helper()
	object := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: ns}, Data: map[string]string{"a": "b"}}
	var texts []string
	for _, encoder := range []runtime.Encoder{protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), cbor.NewSerializer(scheme.Scheme, scheme.Scheme)} {
		text, err := runtime.Encode(encoder, object)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts[0], texts[1]
}

// TestAnswersAreEqual sends the same requests straight to the managed
// kube-apiserver and through every endpoint. It disturbs nothing: what it makes lies
// in a namespace of its own.
func TestAnswersAreEqual(t *testing.T) {
	releaseOnNodes(t)
	cluster := installed.Clusters[0]
	cs := suite.Clientset(t, installed.Direct(cluster))
	ns := suite.Scratch(t, cs)
	for _, name := range []string{"one", "two"} {
		if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"e2e": "yes"}}, Data: map[string]string{"a": "a"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := cs.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes, %v; want one", len(nodes.Items), err)
	}
	list, err := cs.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, cluster, requests(t, ns, suite.WebPod(t, cs), nodes.Items[0].Name, list.ResourceVersion))
}

// compare wants of every endpoint the answers that the kube-apiserver gives.
func compare(t *testing.T, cluster string, requests []suite.Request) {
	t.Helper()
	endpoints := installed.Endpoints(cluster)
	for _, r := range requests {
		t.Run(r.Name, func(t *testing.T) {
			want, err := suite.Ask(t.Context(), endpoints[0].Cfg, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, endpoint := range endpoints[1:] {
				if r.Refused && endpoint.Name == "aggregated" {
					continue
				}
				got, err := suite.Ask(t.Context(), endpoint.Cfg, r)
				if err != nil {
					t.Errorf("asking through %s: %v", endpoint.Name, err)
					continue
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-straight +%s):\n%.2000s", endpoint.Name, endpoint.Name, diff)
				}
			}
		})
	}
}
