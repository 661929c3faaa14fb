package proxyapi

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	annotationPrefix = hubaccess.AnnotationPrefix
	decisionKey      = "authorization.k8s.io/decision"
	reasonKey        = "authorization.k8s.io/reason"
)

// authorized lets a request on if the hub allows it: what the inner request
// does, and streams if it leaves the Kubernetes API. A caller whom the hub does
// not know is the managed cluster's business.
func (h *handler) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		if c.passThrough {
			audit.AddAuditAnnotation(r.Context(), decisionKey, "left to the managed cluster")
			next.ServeHTTP(w, r)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		reason, ok := h.allowed(w, r, attributes)
		if ok && c.leaves {
			reason, ok = h.allowed(w, r, streamAttributes(attributes))
		}
		if !ok {
			return
		}
		audit.AddAuditAnnotations(r.Context(), decisionKey, "allow", reasonKey, reason)
		u := attributes.GetUser()
		if c.inner != nil {
			if err := agentclient.CheckUser(u); err != nil {
				h.metrics.denied.WithLabelValues("user").Inc()
				h.refuse(w, r, err)
				return
			}
			c.user = u
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
func (h *handler) allowed(w http.ResponseWriter, r *http.Request, a authorizer.Attributes) (reason string, ok bool) {
	decision, reason, err := h.authorizer.Authorize(r.Context(), a)
	if decision == authorizer.DecisionAllow {
		return reason, true
	}
	if err != nil {
		audit.AddAuditAnnotation(r.Context(), reasonKey, "internal error")
		h.refuse(w, r, refusal(http.StatusServiceUnavailable, "the hub's kube-apiserver could not be asked whether the request is allowed: try again"))
		return reason, false
	}
	h.metrics.denied.WithLabelValues("forbidden").Inc()
	audit.AddAuditAnnotations(r.Context(), decisionKey, "forbid", reasonKey, reason)
	responsewriters.Forbidden(a, w, r, strings.TrimSpace(reason+" bind a role such as ClusterRole cluster-proxy-user on the hub"), codecs)
	return reason, false
}

// userOf is who sends a request, after impersonation.
func userOf(ctx context.Context) user.Info {
	u, _ := request.UserFrom(ctx)
	return u
}
