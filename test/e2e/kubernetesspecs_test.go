package e2e

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// specsFocus is what make e2e-kubernetes is about: all specs of two SIGs, and
// those of pods that exec and read logs without kubectl.
const specsFocus = `\[sig-api-machinery\]|\[sig-cli\]|\[sig-node\] Pods .*over websockets`

// specRunsAtOnce is how many endpoints have their turn side by side: specs wait
// for pods most of the time.
const specRunsAtOnce = 6

const specsHeader = `Kubernetes v1.37.2's own e2e specs of sig api-machinery and sig cli, and of exec and logs over websockets, on real nodes: straight at a
managed kube-apiserver (direct) and through the endpoints, each once: the proxy API's by path (hub-user), the hub's aggregated API (aggregated),
a fleet view of this one cluster (view), CONNECT (connect), and a fleet view of this cluster and another one (fleet). All but direct carry a token of the hub, so that the user is impersonated; by CONNECT it opens the connection, and
the cluster's token is inside, with DISABLE_HTTP2 set, since client-go's HTTP/2 does not work with HTTPS proxies. Written by make e2e-kubernetes.

Through the view of two clusters only specs that read have a turn, which are named in test/e2e/kubernetesspecs_test.go. A view of several wants to be told the cluster
of what is made, and specs do not tell it: what they make to have something to read, their namespace before all, is made straight at the other cluster.

The endpoint by host name has no column: neither the specs nor kubectl, as they call it, take a server's name for TLS from a kubeconfig, and the
lab has no certificate for names below the domain. It is the endpoint by path with the cluster's name in another place.

Images are built here (test/lab/specimages.go): agnhost from Kubernetes' own source, which is pause too and, with its own files, nautilus, busybox from Debian,
nginx as busybox's web server, because the specs only start it. kubectl is Kubernetes v1.37.2's.

`

// reason says why specs whose names match are left out.
type reason struct{ specs, why string }

// leftOut is left out through all endpoints. Of two that match a spec the first
// counts.
var leftOut = []reason{
	{`\[Serial\]|\[Disruptive\]`, "they want a cluster to themselves, and endpoints have their turns side by side"},
	{`\[Flaky\]`, "Kubernetes calls them flaky"},
	{`\[Feature:`, "they need features that are off by default"},
	{`AdmissionWebhook|CustomResourceConversionWebhook|(Validating|Mutating)AdmissionPolicy`, "they are about what the kube-apiserver asks of webhooks and policies; what they send is sent by other specs"},
	{`Aggregator`, "it needs sample-apiserver of Kubernetes 1.17, of which there is no source here"},
	{`Garbage collector|ResourceQuota|OrderedNamespaceDeletion|Generated clientset`, "they are about controllers; what they send is sent by other specs"},
	{`CustomResourceValidationRules|CRDValidationRatcheting|CustomResourcePublishOpenAPI|CustomResourceFieldSelectors|CustomResourceDefinition Watch`,
		"they are about what the kube-apiserver makes of definitions, for minutes; what they send is sent by other specs"},
	{`priority and fairness`, "they are about the kube-apiserver's queues for users by name, and count on being the only ones"},
	{`should handle in-cluster config`, "it runs printenv in its pod, which upstream's image has from Alpine's busybox and Debian's lacks; it fails straight as well"},
	{`\[Slow\]`, "they take minutes each, for etcd's compaction, for what is idle for 320 s (TestIdleStreams has idle streams), or for restarts"},
}

// leftOutThrough is left out through one endpoint.
var leftOutThrough = map[string][]reason{
	"hub-user":   {ofServersWithoutPath, ofKubectlProxy},
	"aggregated": {ofServersWithoutPath, ofKubectlProxy},
	"view":       {ofServersWithoutPath, ofKubectlProxy},
	fleetColumn:  {ofTables, ofPages, ofNames, ofWriters},
	"connect": {
		{`exec through (an HTTP proxy|kubectl proxy)`, "the kubeconfig has a proxy already, the proxy API, and kubectl asks for everything through it"},
		{`over websockets`, "the specs' own client for websockets knows no proxies"},
	},
}

var (
	ofKubectlProxy       = reason{`Proxy server should support|exec through kubectl proxy`, "kubectl proxy leaves out the path of the server's URL unless it is told otherwise (--append-server-path)"}
	ofServersWithoutPath = reason{`exec through an HTTP proxy`, "the spec takes the server's URL for host and port, and there is a path in it"}
)

// fleetColumn is a view of two clusters.
const fleetColumn = "fleet"

// specsFleetView is that view.
const specsFleetView = "e2e-specs-fleet"

// reading are the specs that only read, but for what they make to have something to read. None
// of them writes what it has read, or compares what it reads with what it wrote: through a view of
// several an object says in an annotation where it is from, and has a version of the view's.
var reading = []string{
	`AggregatedDiscovery should support aggregated discovery interface \[`,
	`AggregatedDiscovery should support raw aggregated discovery endpoint Accept headers`,
	`Discovery should (accurately determine present and missing resources|locate the groupVersion and a resource|validate PreferredVersion)`,
	`OpenAPIV3 should round trip OpenAPI V3 for all built-in group versions`,
	`Server request timeout`,
	`server version should find the server version`,
	`Servers with support for API chunking should return chunks of results`,
	`API Streaming .* reflector doesn't support receiving resources as Tables`,
	`client-go should negotiate watch and report errors .*application/json`, // a view of several writes no protobuf
	`Kubectl client Kubectl (api-versions|version) `,
	`Kubectl client kubectl subresource flag`,
}

var (
	ofTables = reason{`Table transformation should return (pod details|chunks of table results|generic metadata details)`,
		"they want NAME for the first column of a Table, and in a view of several clusters that is CLUSTER: their objects may be called the same"}
	ofPages = reason{`reflector using standard List doesn't support receiving resources as Tables`,
		"it counts on one page: a view leaves a cluster that takes longer than the others to the next one, and client-go's pager makes a List of Tables in pages"}
	ofNames   = reason{`get componentstatuses`, "it gets what each of the clusters has by its bare name, which is answered 409 with the names to choose from"}
	ofWriters = reason{`.`, "they do not only read; or they compare what they read with what they wrote, or read otherwise, with its resourceVersion; or they are about one cluster's own: its /healthz, its services of the control plane, what runs in its pods"}
)

// focusOf is ginkgo's pattern of the specs that have a turn through an endpoint.
func focusOf(endpoint string) string {
	if endpoint == fleetColumn {
		return strings.Join(reading, "|")
	}
	return specsFocus
}

// chosen are the endpoints of those names, or all of them; the first is always there, with which
// the others are compared.
func chosen(t *testing.T, endpoints []suite.Endpoint, names string) []suite.Endpoint {
	t.Helper()
	if names == "" {
		return endpoints
	}
	wanted := strings.Split(names, ",")
	some := slices.DeleteFunc(slices.Clone(endpoints[1:]), func(e suite.Endpoint) bool { return !slices.Contains(wanted, e.Name) })
	if len(some) != len(wanted) {
		t.Fatalf("E2E_ENDPOINTS has %q; want some of those after the first of %v", names, endpoints)
	}
	return append(endpoints[:1:1], some...)
}

// readsFleet is an endpoint where reading requests go to a view of several clusters, and all
// others straight to the last cluster, as its administrator's: only of what the last one has a view
// says how much follows a page, as a spec wants it to.
func readsFleet(t *testing.T, clusters []string) *rest.Config {
	t.Helper()
	var names []any
	for _, cluster := range clusters {
		names = append(names, cluster)
	}
	installed.MakeView(t, specsFleetView, map[string]any{"clusters": map[string]any{"names": names}})
	view := installed.ViewEndpoints(specsFleetView, installed.HubToken)[0].Cfg
	// The view's path stays: it is part of URLs in what a view answers.
	path := urlOf(t, view).Path
	reads, writes := passOn(t, view), passOn(t, installed.Direct(clusters[len(clusters)-1]))
	server := httptest.NewTLSServer(http.StripPrefix(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			reads.ServeHTTP(w, r)
			return
		}
		writes.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL + path, BearerToken: "any", TLSClientConfig: rest.TLSClientConfig{CAData: ca}} // kubectl asks for a password without
}

// passOn sends requests on as they are, with the credential of cfg.
func passOn(t *testing.T, cfg *rest.Config) http.Handler {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	to := urlOf(t, cfg)
	return &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = to.Host
		r.Out.Header.Del("Authorization")
	}}
}

func urlOf(t *testing.T, cfg *rest.Config) *url.URL {
	t.Helper()
	parsed, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// skipped is ginkgo's pattern for one endpoint.
func skipped(endpoint string) string {
	var patterns []string
	for _, reasons := range [][]reason{leftOut, leftOutThrough[endpoint]} {
		for _, r := range reasons {
			if r != ofWriters { // those are all that the focus is not on
				patterns = append(patterns, r.specs)
			}
		}
	}
	return strings.Join(patterns, "|")
}
