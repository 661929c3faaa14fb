package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// answer is what a client gets that it could tell doors apart by.
type answer struct {
	Code    int
	Headers http.Header
	Body    string
}

// telling are the headers of an answer that a client acts on. Vary is not among
// them: the hub's kube-apiserver adds it to answers that it passes on.
var telling = []string{"Content-Type", "Content-Encoding", "Cache-Control", "Warning", "Etag", "Retry-After", "Location", "Allow", "Www-Authenticate"}

// varying is what differs between two answers of one kube-apiserver to the same
// request: what is made up for an object that is only tried out, and ages in
// Tables.
var varying = regexp.MustCompile(`("(?:uid|creationTimestamp|time|resourceVersion)":|"cells":\["[^"]*",\d+,)"[^"]*"`)

type request struct {
	name, method, path string
	header             http.Header
	body               string
	// refused says that the hub's own kube-apiserver refuses it, see proxyapi's
	// package comment.
	refused bool
}

// ask sends a request as it is: no client library adds to it or takes from it.
func ask(ctx context.Context, cfg *rest.Config, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return answer{}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req, err := http.NewRequestWithContext(ctx, r.method, strings.TrimSuffix(cfg.Host, "/")+r.path, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		plain, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return answer{}, err
		}
		if body, err = io.ReadAll(plain); err != nil {
			return answer{}, err
		}
	}
	a := answer{Code: resp.StatusCode, Headers: http.Header{}, Body: varying.ReplaceAllString(string(body), `$1"…"`)}
	for _, name := range telling {
		if values := resp.Header.Values(name); len(values) > 0 {
			a.Headers[name] = values
		}
	}
	// A redirect stays behind the door that it came through.
	if door, err := url.Parse(cfg.Host); err == nil && a.Headers.Get("Location") != "" {
		a.Headers.Set("Location", strings.TrimPrefix(a.Headers.Get("Location"), door.Path))
	}
	// The hub's kube-apiserver says its own before the one that it passes on.
	if cached := a.Headers["Cache-Control"]; len(cached) > 1 {
		a.Headers["Cache-Control"] = cached[len(cached)-1:]
	}
	return a, nil
}

func accept(kind string) http.Header  { return http.Header{"Accept": {kind}} }
func content(kind string) http.Header { return http.Header{"Content-Type": {kind}} }

// requests are of every kind; they change nothing, so that each door finds the
// same cluster.
func requests(t *testing.T, ns, pod, node string) []request {
	t.Helper()
	maps := "/api/v1/namespaces/" + ns + "/configmaps"
	const dry = "dryRun=All"
	object := func(name, data string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"a":%q}}`, name, ns, data)
	}
	inProtobuf, inCBOR := encodings(t, ns)
	many := http.Header{}
	for i := range 1000 {
		many.Set(fmt.Sprint("X-E2e-", i), strings.Repeat("x", 40))
	}
	return []request{
		{name: "list", method: "GET", path: maps + "?labelSelector=e2e"},
		{name: "list in parts", method: "GET", path: maps + "?labelSelector=e2e&limit=1"},
		{name: "list as Table", method: "GET", path: maps + "?labelSelector=e2e", header: accept("application/json;as=Table;v=v1;g=meta.k8s.io")},
		{name: "list as metadata", method: "GET", path: maps + "?labelSelector=e2e", header: accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")},
		{name: "list as protobuf", method: "GET", path: maps + "?labelSelector=e2e", header: accept("application/vnd.kubernetes.protobuf")},
		{name: "list as CBOR", method: "GET", path: maps + "?labelSelector=e2e", header: accept("application/cbor")},
		{name: "list as YAML", method: "GET", path: maps + "?labelSelector=e2e", header: accept("application/yaml")},
		{name: "list as nothing known", method: "GET", path: maps, header: accept("image/png")},
		{name: "list with gzip", method: "GET", path: "/openapi/v2", header: http.Header{"Accept-Encoding": {"gzip"}}},
		{name: "get", method: "GET", path: maps + "/one"},
		{name: "get what is not there", method: "GET", path: maps + "/none"},
		{name: "head", method: "HEAD", path: maps + "/one"},
		{name: "watch", method: "GET", path: maps + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=one"},
		{name: "watch from long ago", method: "GET", path: maps + "?watch=1&timeoutSeconds=1&resourceVersion=1"},
		{name: "a bad selector", method: "GET", path: maps + "?labelSelector=%21%21"},
		{name: "a bad limit", method: "GET", path: maps + "?limit=many"},
		{name: "create", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: object("new", "b")},
		{name: "create from YAML", method: "POST", path: maps + "?" + dry, header: content("application/yaml"), body: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n"},
		{name: "create from protobuf", method: "POST", path: maps + "?" + dry, header: content("application/vnd.kubernetes.protobuf"), body: inProtobuf},
		{name: "create from CBOR", method: "POST", path: maps + "?" + dry, header: content("application/cbor"), body: inCBOR},
		{name: "create from half a protobuf", method: "POST", path: maps + "?" + dry, header: content("application/vnd.kubernetes.protobuf"), body: inProtobuf[:len(inProtobuf)/2]},
		{name: "create what is there", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: object("one", "b")},
		{name: "create something else", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"}}`},
		{name: "create nonsense", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: `{`},
		{name: "create a bad name", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: object("Not A Name", "b")},
		{name: "create with an unknown field", method: "POST", path: maps + "?" + dry + "&fieldValidation=Strict", header: content("application/json"), body: strings.Replace(object("new", "b"), `"data"`, `"date":1,"data"`, 1)},
		{name: "create with a warning", method: "POST", path: maps + "?" + dry + "&fieldValidation=Warn", header: content("application/json"), body: strings.Replace(object("new", "b"), `"data"`, `"date":1,"data"`, 1)},
		{name: "create something big", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: object("new", strings.Repeat("b", 900<<10))},
		{name: "create something too big", method: "POST", path: maps + "?" + dry, header: content("application/json"), body: object("new", strings.Repeat("b", 4<<20))},
		{name: "update", method: "PUT", path: maps + "/one?" + dry, header: content("application/json"), body: object("one", "c")},
		{name: "update with a conflict", method: "PUT", path: maps + "/one?" + dry, header: content("application/json"), body: strings.Replace(object("one", "c"), `"name"`, `"resourceVersion":"1","name"`, 1)},
		{name: "update a collection", method: "PUT", path: maps, header: content("application/json"), body: object("one", "c")},
		{name: "JSON patch", method: "PATCH", path: maps + "/one?" + dry, header: content("application/json-patch+json"), body: `[{"op":"add","path":"/data/b","value":"1"}]`},
		{name: "merge patch", method: "PATCH", path: maps + "/one?" + dry, header: content("application/merge-patch+json"), body: `{"data":{"b":"1"}}`},
		{name: "strategic merge patch", method: "PATCH", path: maps + "/one?" + dry, header: content("application/strategic-merge-patch+json"), body: `{"data":{"b":"1"}}`},
		{name: "apply", method: "PATCH", path: maps + "/one?fieldManager=e2e&force=true&" + dry, header: content("application/apply-patch+yaml"), body: object("one", "d")},
		{name: "apply with a conflict", method: "PATCH", path: maps + "/one?fieldManager=e2e&" + dry, header: content("application/apply-patch+yaml"), body: object("one", "d")},
		{name: "apply something new", method: "PATCH", path: maps + "/new?fieldManager=e2e&" + dry, header: content("application/apply-patch+yaml"), body: object("new", "d")},
		{name: "apply without a manager", method: "PATCH", path: maps + "/one?" + dry, header: content("application/apply-patch+yaml"), body: object("one", "d")},
		{name: "apply from CBOR", method: "PATCH", path: maps + "/one?fieldManager=e2e&" + dry, header: content("application/apply-patch+cbor"), body: inCBOR},
		{name: "a patch of no kind", method: "PATCH", path: maps + "/one?" + dry, header: content("text/plain"), body: `{}`},
		{name: "delete", method: "DELETE", path: maps + "/one?" + dry},
		{name: "delete what is not there", method: "DELETE", path: maps + "/none?" + dry},
		{name: "delete a collection", method: "DELETE", path: maps + "?labelSelector=e2e&" + dry},
		// Its beginning; the end is another one each second.
		{name: "logs", method: "GET", path: "/api/v1/namespaces/default/pods/" + pod + "/log?limitBytes=20"},
		{name: "logs of no container", method: "GET", path: "/api/v1/namespaces/default/pods/" + pod + "/log?container=none"},
		{name: "exec without an upgrade", method: "POST", path: "/api/v1/namespaces/default/pods/" + pod + "/exec?command=true&stdout=1"},
		{name: "a pod by its proxy", method: "GET", path: "/api/v1/namespaces/default/pods/" + pod + ":8080/proxy/"},
		{name: "a Service by its proxy", method: "GET", path: "/api/v1/namespaces/default/services/none/proxy/"},
		{name: "a node by its proxy", method: "GET", path: "/api/v1/nodes/" + node + "/proxy/healthz"},
		{name: "a long header", method: "GET", path: maps + "/one", header: http.Header{"X-E2e": {strings.Repeat("x", 60<<10)}}},
		{name: "many headers", method: "GET", path: maps + "/one", header: many},
		{name: "a long selector", method: "GET", path: maps + "?labelSelector=e2e" + strings.Repeat(",e2e", 14<<10)},
		{name: "version", method: "GET", path: "/version"},
		{name: "discovery", method: "GET", path: "/apis"},
		{name: "aggregated discovery", method: "GET", path: "/apis", header: accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")},
		{name: "OpenAPI", method: "GET", path: "/openapi/v3/api/v1"},
		{name: "no such API", method: "GET", path: "/apis/example.org/v1/things"},
		{name: "no such path", method: "GET", path: "/no/such/path?a=b"},
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
// kube-apiserver and through every door.
func TestAnswersAreEqual(t *testing.T) {
	cluster := suite.clusters[0]
	cs := clientset(t, suite.direct(cluster))
	ns := scratch(t, cs)
	for _, name := range []string{"one", "two"} {
		if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"e2e": "yes"}}, Data: map[string]string{"a": "a"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := cs.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	compare(t, cluster, requests(t, ns, webPod(t, cs), nodes.Items[0].Name))
}

// compare wants of every door the answers that the kube-apiserver gives.
func compare(t *testing.T, cluster string, requests []request) {
	t.Helper()
	doors := suite.doors(cluster)
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			want, err := ask(t.Context(), doors[0].cfg, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, door := range doors[1:] {
				if r.refused && door.name == "aggregated" {
					continue
				}
				got, err := ask(t.Context(), door.cfg, r)
				if err != nil {
					t.Errorf("%s: %v", door.name, err)
					continue
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-straight +%s):\n%.2000s", door.name, door.name, diff)
				}
			}
		})
	}
}

// TestEarlyAnswersEnd sends bodies that the kube-apiserver answers before it has
// read them; every answer must come to its end nevertheless.
func TestEarlyAnswersEnd(t *testing.T) {
	const workers, each = 8, 25
	cluster := suite.clusters[0]
	r := request{method: http.MethodPatch, path: "/api/v1/namespaces/default/configmaps/kube-root-ca.crt?dryRun=All", header: content("text/plain")}
	for _, door := range suite.doors(cluster) {
		for _, size := range []int{2, 300 << 10} {
			t.Run(fmt.Sprint(door.name, "/", size), func(t *testing.T) {
				r.body = strings.Repeat("x", size)
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						for range each {
							if got, err := ask(t.Context(), door.cfg, r); err != nil || got.Code != http.StatusUnsupportedMediaType {
								t.Errorf("answered %d, %v", got.Code, err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
