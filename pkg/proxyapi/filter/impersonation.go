package filter

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// WithImpersonation checks Impersonate-* headers of the hub's users on the hub, and
// takes them off. Those of others are the managed cluster's business.
//
// Constrained impersonation is for verbs and resources, and a request that
// leaves the Kubernetes API does two things: what it is, and a stream. So it is
// checked for both. A view is for many clusters, and grants nothing: constrained
// impersonation there needs the right to all clusters.
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

// streamInfo is a request for streams of the cluster that info is about.
func streamInfo(info *request.RequestInfo) *request.RequestInfo {
	stream := *info
	stream.Verb, stream.Subresource = "create", v1alpha1.StreamSubresource
	stream.Parts = []string{v1alpha1.Resource, info.Name, v1alpha1.StreamSubresource}
	return &stream
}
