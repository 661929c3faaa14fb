package proxyapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// Annotations of audit events.
const (
	annotationPrefix = hubaccess.AnnotationPrefix
	decisionKey      = "authorization.k8s.io/decision"
	reasonKey        = "authorization.k8s.io/reason"
)

// requestFilters are what a request goes through before it is served, one file for each: see
// newChain for their order. They decide with what is in here.
type requestFilters struct {
	clusters      clusters
	views         views
	authenticator *hubaccess.Authenticator
	authorizer    *hubaccess.Authorizer
	services      services
	// karmada is nil if there is no such API.
	karmada  *karmada
	metrics  *metrics
	sessions *sessions
	// allowAnonymous lets requests without a credential go to the clusters.
	allowAnonymous bool
	// requests and streams are limits of those with a natural end, and without.
	requests, streams *limiter
	// viewRequests are limits of those for views, streams included.
	viewRequests *limiter
	// uploads are limits of the bytes of requests' bodies that are not read.
	uploads *limiter
	// memory is what the process has for more requests; nil is without limit.
	memory *memlimit.Gate
	// via finds requests that come a second time.
	via via
}

// clusters is what the hub knows about managed clusters, for requests.
type clusters interface {
	agentclient.Admission
	// Synced is an error until the hub's answer is complete.
	Synced() error
	// AwaySince is when the addon of that cluster stopped being available; zero if
	// it is available or that is not known.
	AwaySince(cluster string) time.Time
	// Names are those of the served clusters, in no order.
	Names() []string
	// Describe says of a served cluster what its objects on the hub say.
	Describe(cluster string) v1alpha1.Cluster
	// Place is where a cluster says that it is; empty if it does not say so.
	Place(cluster string) (provider, region string)
	// UID tells a served cluster from an earlier one of the same name.
	UID(cluster string) string
	// ClusterSet is the ManagedClusterSet that a cluster has joined.
	ClusterSet(cluster string) string
}

// views is what the hub knows about fleet views.
type views interface {
	// Get returns nil if there is no such view; the error means that this is not known.
	Get(name string) (*proxyv1alpha1.FleetView, error)
	// Names are those of all views, in no order.
	Names() []string
	// Clusters are the served clusters of a view, sorted. The error says why the
	// view is not valid.
	Clusters(view *proxyv1alpha1.FleetView) ([]string, error)
	// InSet reports whether a cluster is in a ManagedClusterSet. The error means that this is not
	// known.
	InSet(cluster, set string) (bool, error)
}

// services is which Services of clusters may be asked for, and how.
type services interface {
	terms(cluster, set string, s agentapi.Service) agentapi.ServiceTerms
}

// refuse answers in the place of the cluster.
func (f *requestFilters) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		// Nobody is there to read an answer, or the drain timeout has passed:
		// the request must not look as if it had been answered.
		panic(http.ErrAbortHandler)
	}
	scope := scopeOf(r.Context())
	cluster := scope.target.Cluster
	if errors.Is(err, context.Canceled) {
		klog.FromContext(r.Context()).Info("Something that a request waited for was canceled", "cluster", cluster, "err", err)
	}
	status := statusFor(f.hidden(scope, err), cluster, f.clusters.AwaySince(cluster))
	if status.Code == http.StatusUnauthorized && r.Method == http.MethodConnect {
		status.Code = http.StatusProxyAuthRequired
		w.Header().Set("Proxy-Authenticate", `Basic realm="cluster-proxy: any user name, a token of the hub as password"`)
	}
	warn(w.Header(), scope, status.Message)
	writeStatus(w, status)
}

// unauthenticated answers a request whose caller is not authenticated.
func (f *requestFilters) unauthenticated(w http.ResponseWriter, r *http.Request) {
	f.refuse(w, r, scopeOf(r.Context()).failure)
}

// noCredential is the answer to a caller who must show a credential.
var noCredential = refusal(http.StatusUnauthorized, "the hub does not know who you are: send a token of the hub, or a client certificate")

// notAccepted is the answer to a caller whom the hub does not know, about a
// cluster that has not accepted the credential: it is the same whether the
// cluster refused it, cannot be reached, or does not exist.
var notAccepted = refusal(http.StatusUnauthorized, "neither the hub nor a cluster of this name accepts the token: send a token of the hub, or one of a cluster that is connected")

// hidden returns notAccepted in place of errors that would tell a caller, whose
// credential neither the hub nor the cluster has accepted, about clusters. Anonymous
// requests are allowed to tell clusters apart if they are allowed at all, but not if
// they are for one Service only.
func (f *requestFilters) hidden(scope *requestScope, err error) error {
	var refused *hubaccess.RefusedError
	var malformed *route.Error
	if !scope.passThrough || scope.credential == "" && f.allowAnonymous || scope.credential != "" && f.authenticator.WasAcceptedBy(scope.target.Cluster, scope.credential) {
		return err
	}
	if errors.As(err, &refused) || errors.As(err, &malformed) {
		return err
	}
	if scope.credential == "" {
		return noCredential
	}
	return notAccepted
}
