package proxyapi

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// withAuthorization lets a request on if the hub allows it: what the inner request
// does, and streams if it leaves the Kubernetes API. A caller whom the hub does
// not know is the managed cluster's business.
func (f *requestFilters) withAuthorization(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := scopeOf(r.Context())
		if scope.passThrough {
			audit.AddAuditAnnotation(r.Context(), decisionKey, "left to the managed cluster")
			next.ServeHTTP(w, r)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		reason, ok := f.allowed(w, r, attributes)
		if ok && scope.leaves {
			reason, ok = f.allowed(w, r, streamAttributes(attributes))
		}
		if !ok {
			return
		}
		audit.AddAuditAnnotations(r.Context(), decisionKey, "allow", reasonKey, reason)
		u := attributes.GetUser()
		if scope.inner != nil {
			if err := agentclient.CheckUser(u); err != nil {
				f.metrics.denied.WithLabelValues("user").Inc()
				f.refuse(w, r, err)
				return
			}
			scope.user = u
			audit.AddAuditAnnotation(r.Context(), annotationPrefix+"user", identity.OnManagedCluster(u.GetName()))
		}
		next.ServeHTTP(w, r)
	})
}

// streamAttributes ask for the right to streams of the same cluster.
func streamAttributes(a authorizer.Attributes) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: a.GetUser(), Verb: "create", ResourceRequest: true, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.Resource, Subresource: v1alpha1.StreamSubresource, Name: a.GetName(), Path: a.GetPath(),
	}
}

// allowed asks the hub, and answers a request that is not. An annotation of an
// audit event stays as it was first set, so only a refusal sets one here.
func (f *requestFilters) allowed(w http.ResponseWriter, r *http.Request, a authorizer.Attributes) (reason string, ok bool) {
	decision, reason, err := f.authorizer.Authorize(r.Context(), a)
	if decision == authorizer.DecisionAllow {
		return reason, true
	}
	if err != nil {
		audit.AddAuditAnnotation(r.Context(), reasonKey, "internal error")
		f.refuse(w, r, refusal(http.StatusServiceUnavailable, "the hub's kube-apiserver could not be asked whether the request is allowed: try again"))
		return reason, false
	}
	f.metrics.denied.WithLabelValues("forbidden").Inc()
	audit.AddAuditAnnotations(r.Context(), decisionKey, "forbid", reasonKey, reason)
	responsewriters.Forbidden(a, w, r, strings.TrimSpace(reason+" bind a role such as ClusterRole cluster-proxy-user on the hub"), codecs)
	return reason, false
}
