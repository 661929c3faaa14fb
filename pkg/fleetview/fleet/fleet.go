package fleet

import (
	"context"
	"net/http"
	"time"
)

// AnnotationCluster is on each object of a view: the name of the cluster it is from.
const AnnotationCluster = "clusterproxy.open-cluster-management.io/cluster"

// Member is one cluster of a view, for one user. Its methods are safe for concurrent use.
type Member interface {
	// Name is the cluster's name, which is in no other member of the view.
	Name() string
	// UID tells the cluster from an earlier one of the same name.
	UID() string
	// RoundTrip sends a request to the cluster's kube-apiserver as the user of the view's
	// request. The URL has a path and a query only. An error is one that users may read:
	// it says why the cluster did not answer.
	RoundTrip(r *http.Request) (*http.Response, error)
}

// View is what one request is about.
type View struct {
	// Name is the view's.
	Name string
	// User tells users apart: what is kept for later requests is kept for one user.
	User string
	// Account is the user, whatever groups and credential the request has: who lists goes on
	// with pages and watches when a token is renewed.
	Account string
	// Prefix is what precedes the Kubernetes path in the request's own URL, like "/@all".
	Prefix string
	// Members returns the clusters of the view that the user may send this request to, and
	// UnlistedCluster, sorted by name. It is asked again while a watch goes on.
	Members func(ctx context.Context) ([]Member, error)
	// Relay sends a request that is not about objects (logs, exec, attach, port-forward,
	// proxy), one for UnlistedCluster, or one of a view that is Single, to one member, and the
	// answer back, as it is. The request's URL is the member's; its header is the client's, with
	// all credentials. In a view that is Single it keeps Timeout for what reads.
	Relay func(w http.ResponseWriter, r *http.Request, to Member)
	// Resources are what the view has; empty means whatever the members serve.
	Resources []ResourceRule
	// UnlistedCluster gets the requests for other resources; empty if they are refused.
	UnlistedCluster string
	// Qualified puts NAME@CLUSTER into metadata.name.
	Qualified bool
	// Single says that the view is of one cluster and can have no other, and that Qualified is
	// not set. It is not to be told from the cluster then.
	Single bool
	// Writes says which requests may change something.
	Writes Writes
	// FailWhenUnreachable answers 503 instead of leaving out clusters that do not answer.
	FailWhenUnreachable bool
	// Timeout is how long a member may take to begin its answer.
	Timeout time.Duration
	// InformerTimeout is how long initial events, and lists of informers, wait for clusters that
	// do not answer.
	InformerTimeout time.Duration
	// Annotations are further annotations for the cluster's name, beside AnnotationCluster.
	Annotations []string
}

// Writes says which requests of a view may change something: writes, and streams such as exec.
type Writes int

const (
	// WritesNamed are those that name their cluster; in a view that is Single, all.
	WritesNamed Writes = iota
	// WritesAny are also those to the only cluster that has the object.
	WritesAny
	// WritesNone are none.
	WritesNone
)

// ResourceRule selects resources of the Kubernetes API. Resource may be "*".
type ResourceRule struct {
	Group, Resource string
	// Namespaces are the ones the view has; empty means all.
	Namespaces []string
	// Clusters reports whether the view has them of a cluster; nil means of each. A watch
	// asks again when the clusters of the view have changed.
	Clusters func(cluster string) bool `json:"-"`
}

// Selects reports whether the rule is about a resource.
func (r ResourceRule) Selects(group, resource string) bool {
	return r.Group == group && (r.Resource == "*" || r.Resource == resource)
}

// Of reports whether the rule is about a cluster.
func (r ResourceRule) Of(cluster string) bool { return r.Clusters == nil || r.Clusters(cluster) }
