package filter

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// WithImpersonation checks Impersonate-* headers of the hub's users on the hub, and
// takes them off. Those of others are the managed cluster's business.
//
// Constrained impersonation is for verbs and resources, and a request that
// leaves the Kubernetes API does two things: what it is, and a stream. So it is
// checked for both. A view is for many clusters, and grants nothing: constrained
// impersonation there needs the right to all clusters.
//
// AccessPolicies hold for who impersonates, too. The hub's kube-apiserver takes these headers off
// before it asks the aggregated endpoint, and does not say who sent them.
func (f *Filters) WithImpersonation(next http.Handler) http.Handler {
	checked := impersonation.WithConstrainedImpersonation(next, f.Authorizer, scope.Codecs)
	type mayStreamKey struct{}
	forStreams := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if mayStream, ok := r.Context().Value(mayStreamKey{}).(*bool); ok {
			*mayStream = true
		}
	}), f.Authorizer, scope.Codecs)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		if rs.PassThrough {
			next.ServeHTTP(w, r)
			return
		}
		rs.Requester = scope.UserOf(r.Context())
		warnOfAccount(w.Header(), r.Header.Get(authenticationv1.ImpersonateUserHeader), rs)
		info := rs.Info
		if rs.Kind == scope.View {
			info = scope.OuterInfo(r, rs.Group, v1alpha1.Resource, "", info.Verb)
			r = r.WithContext(request.WithRequestInfo(r.Context(), info))
		}
		if rs.Leaves {
			mayStream := false
			ctx := context.WithValue(request.WithRequestInfo(r.Context(), streamInfo(info)), mayStreamKey{}, &mayStream)
			if forStreams.ServeHTTP(w, r.Clone(ctx)); !mayStream {
				return // it was answered
			}
		}
		checked.ServeHTTP(w, r)
	})
}

// warnOfAccount tells who impersonates a service account whose it is: they may mean one of the
// cluster, and get the answer for another.
func warnOfAccount(header http.Header, name string, rs *scope.Scope) {
	if rs.Kind != scope.Own && strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) {
		fault.AddWarning(header, fmt.Sprintf("--as means the hub's service account, which the hub decides about and which is %q on clusters but the hub's own: accounts of a cluster itself cannot be impersonated through the hub", identity.OnManagedCluster(name)))
	}
}

// streamInfo is a request for streams of the cluster that info is about.
func streamInfo(info *request.RequestInfo) *request.RequestInfo {
	stream := *info
	stream.Verb, stream.Subresource = "create", v1alpha1.StreamSubresource
	stream.Parts = []string{v1alpha1.Resource, info.Name, v1alpha1.StreamSubresource}
	return &stream
}
