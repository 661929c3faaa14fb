package filter

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authn"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Annotations of audit events.
const (
	decisionKey = "authorization.k8s.io/decision"
	reasonKey   = "authorization.k8s.io/reason"
)

// Filters are what a request goes through before it is served, one file for each: see
// newChain for their order. They decide with what is in here.
type Filters struct {
	Clusters      scope.Clusters
	Views         scope.Views
	Authenticator *authn.Authenticator
	Authorizer    *authz.Authorizer
	Services      Services
	Policies      scope.Policies
	// Karmada is nil if there is no such API.
	Karmada  *scope.Karmada
	Metrics  *metrics.Metrics
	Sessions *session.Registry
	// AllowAnonymous lets requests without a credential go to the clusters.
	AllowAnonymous bool
	// Requests and streams are limits of those with a natural end, and without.
	Requests, Streams *scope.Limiter
	// ViewRequests are limits of those for views, streams included.
	ViewRequests *scope.Limiter
	// Uploads are limits of the bytes of requests' bodies that are not read.
	Uploads *scope.Limiter
	// Memory is what the process has for more requests; nil is without limit.
	Memory *memlimit.Gate
	// Via finds requests that come a second time.
	Via scope.Via
}

// Services is which Services of clusters may be asked for, and how.
type Services interface {
	terms(cluster, set string, s agentapi.Service) agentapi.ServiceTerms
	// Entries are all of the list, which nobody may change.
	Entries() agentapi.ExposedServices
}

// Refuse answers in the place of the cluster.
func (f *Filters) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		// Nobody is there to read an answer, or the drain timeout has passed:
		// the request must not look as if it had been answered.
		panic(http.ErrAbortHandler)
	}
	rs := scope.Of(r.Context())
	cluster := rs.Target.Cluster
	if errors.Is(err, context.Canceled) {
		klog.FromContext(r.Context()).Error(err, "Something that a request waited for was canceled", "cluster", cluster)
	}
	answer := scope.StatusFor(f.hidden(rs, err), cluster, f.Clusters.AwaySince(cluster))
	if answer.Code == http.StatusUnauthorized && r.Method == http.MethodConnect {
		answer.Code = http.StatusProxyAuthRequired
		w.Header().Set("Proxy-Authenticate", `Basic realm="cluster-proxy: any user name, a token of the hub as password"`)
	}
	scope.Warn(w.Header(), rs, answer.Message)
	status.Write(w, answer)
}

// Unauthenticated answers a request whose caller is not authenticated.
func (f *Filters) Unauthenticated(w http.ResponseWriter, r *http.Request) {
	f.Refuse(w, r, scope.Of(r.Context()).Failure)
}

// noCredential is the answer to a caller who must show a credential.
var noCredential = status.New(http.StatusUnauthorized, "the hub does not know who you are: send a token of the hub, or a client certificate")

// NotAccepted is the answer to a caller whom the hub does not know, about a
// cluster that has not accepted the credential: it is the same whether the
// cluster refused it, cannot be reached, or does not exist.
var NotAccepted = status.New(http.StatusUnauthorized, "neither the hub nor a cluster of this name accepts the token: send a token of the hub, or one of a cluster that is connected")

// hidden returns notAccepted in place of errors that would tell a caller, whose
// credential neither the hub nor the cluster has accepted, about clusters. Anonymous
// requests are allowed to tell clusters apart if they are allowed at all, but not if
// they are for one Service only.
func (f *Filters) hidden(rs *scope.Scope, err error) error {
	var refused *status.Error
	var malformed *route.Error
	if !rs.PassThrough || rs.Credential == "" && f.AllowAnonymous || rs.Credential != "" && f.Authenticator.WasAcceptedBy(rs.Target.Cluster, rs.Credential) {
		return err
	}
	if errors.As(err, &refused) || errors.As(err, &malformed) {
		return err
	}
	if rs.Credential == "" {
		return noCredential
	}
	return NotAccepted
}
