package e2e

import "strings"

// specsFocus is what make e2e-kubernetes is about: all specs of two SIGs, and
// those of pods that exec and read logs without kubectl.
const specsFocus = `\[sig-api-machinery\]|\[sig-cli\]|\[sig-node\] Pods .*over websockets`

// specRunsAtOnce is how many endpoints have their turn side by side: specs wait
// for pods most of the time.
const specRunsAtOnce = 6

const specsHeader = `Kubernetes v1.36.3's own e2e specs of sig api-machinery and sig cli, and of exec and logs over websockets, on real nodes: straight at a
managed kube-apiserver (direct) and through the endpoints, each once: the proxy API's by path (hub-user), the hub's aggregated API (aggregated),
a fleet view of this one cluster (view), and CONNECT (connect). All but direct carry a token of the hub, so that the user is impersonated; by CONNECT it opens the connection, and
the cluster's token is inside, with DISABLE_HTTP2 set, since client-go's HTTP/2 does not work with HTTPS proxies. Written by make e2e-kubernetes.

The endpoint by host name has no column: neither the specs nor kubectl, as they call it, take a server's name for TLS from a kubeconfig, and the
lab has no certificate for names below the domain. It is the endpoint by path with the cluster's name in another place.

Images are built here (test/lab/specimages.go): agnhost from Kubernetes' own source, which is pause too and, with its own files, nautilus, busybox from Debian,
nginx as busybox's web server, because the specs only start it. kubectl is Kubernetes v1.36.3's.

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
	"connect": {
		{`exec through (an HTTP proxy|kubectl proxy)`, "the kubeconfig has a proxy already, the proxy API, and kubectl asks for everything through it"},
		{`over websockets`, "the specs' own client for websockets knows no proxies"},
	},
}

var (
	ofKubectlProxy       = reason{`Proxy server should support|exec through kubectl proxy`, "kubectl proxy leaves out the path of the server's URL unless it is told otherwise (--append-server-path)"}
	ofServersWithoutPath = reason{`exec through an HTTP proxy`, "the spec takes the server's URL for host and port, and there is a path in it"}
)

// skipped is ginkgo's pattern for one endpoint.
func skipped(endpoint string) string {
	var patterns []string
	for _, reasons := range [][]reason{leftOut, leftOutThrough[endpoint]} {
		for _, r := range reasons {
			patterns = append(patterns, r.specs)
		}
	}
	return strings.Join(patterns, "|")
}
