package filter

import (
	"fmt"
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
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// WithAuthorization lets a request on if the hub allows it: what the inner request
// does, and streams if it leaves the Kubernetes API; for a view, the view, whose
// clusters are asked about one by one (members.go). A caller whom the hub does not know is
// the managed cluster's business.
func (f *Filters) WithAuthorization(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		if rs.PassThrough {
			audit.AddAuditAnnotation(r.Context(), decisionKey, "left to the managed cluster")
			next.ServeHTTP(w, r)
			return
		}
		reason, ok := f.authorize(w, r, rs)
		if !ok {
			return
		}
		audit.AddAuditAnnotations(r.Context(), decisionKey, "allow", reasonKey, reason)
		if rs.Kind != scope.Own || rs.Long {
			u := scope.UserOf(r.Context())
			if err := agentclient.CheckUser(u); err != nil {
				f.Metrics.Rejected.WithLabelValues("user").Inc()
				f.Refuse(w, r, err)
				return
			}
			rs.User = u
			audit.AddAuditAnnotation(r.Context(), scope.AnnotationPrefix+"user", identity.OnManagedCluster(u.GetName()))
		}
		next.ServeHTTP(w, r)
	})
}

// authorize asks the hub, and answers a request that is not allowed.
func (f *Filters) authorize(w http.ResponseWriter, r *http.Request, rs *scope.Scope) (reason string, ok bool) {
	switch rs.Kind {
	case scope.Own:
		attributes, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return "", false
		}
		decision, reason, err := f.Authorizer.Authorize(r.Context(), attributes)
		return reason, f.allowed(w, r, attributes, decision, reason, err)
	case scope.Cluster:
		u := scope.UserOf(r.Context())
		for _, right := range rs.Rights() {
			var decision authorizer.Decision
			var err error
			decision, reason, err = f.Authorizer.AuthorizeCluster(r.Context(), u, right, rs.Target.Cluster)
			if !f.allowed(w, r, right.OfCluster(u, rs.Target.Cluster), decision, reason, err) {
				return "", false
			}
		}
		return reason, true
	case scope.View:
		if rs.IsKarmadas() {
			a := viewAttributes(scope.UserOf(r.Context()), rs.Info)
			decision, reason, err := f.Authorizer.Authorize(r.Context(), a)
			return reason, f.allowed(w, r, a, decision, reason, err)
		}
		return f.authorizeView(w, r, rs.Target.View)
	}
	f.Refuse(w, r, scope.ErrNoScope)
	return "", false
}

// authorizeView answers a view that there is not and one that the user may not use in
// the same way.
func (f *Filters) authorizeView(w http.ResponseWriter, r *http.Request, name string) (reason string, ok bool) {
	view, err := f.Views.Get(name)
	if err != nil {
		f.Refuse(w, r, status.New(http.StatusServiceUnavailable, fmt.Sprintf("the proxy API is starting: %v", err)))
		return "", false
	}
	u := scope.UserOf(r.Context())
	attributes := authz.ViewAttributes(u, "get", name)
	decision, reason, err := f.Authorizer.Authorize(r.Context(), attributes)
	if err == nil && (decision != authorizer.DecisionAllow || view == nil) {
		return "", f.refuseView(w, r, u, name)
	}
	return reason, f.allowed(w, r, attributes, decision, reason, err)
}

// viewAttributes ask whether a user has the right to a view of Karmada's API: the one to its
// URL, with the verb of the inner request.
func viewAttributes(u user.Info, info *request.RequestInfo) authorizer.Attributes {
	return authorizer.AttributesRecord{User: u, Verb: info.Verb, ResourceRequest: true, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Resource: info.Resource, Subresource: info.Subresource, Name: info.Name, Path: info.Path}
}

// shownViews is how many views' names are in an error.
const shownViews = 20

// refuseView tells which views there are, if the user may know. It returns false.
func (f *Filters) refuseView(w http.ResponseWriter, r *http.Request, u user.Info, name string) bool {
	names, mayList, err := f.Authorizer.UsableViews(r.Context(), u, f.Views.Names())
	if err != nil || !mayList {
		return f.allowed(w, r, authz.ViewAttributes(u, "get", name), authorizer.DecisionNoOpinion, "", err)
	}
	f.Metrics.Rejected.WithLabelValues("forbidden").Inc()
	audit.AddAuditAnnotation(r.Context(), decisionKey, "forbid")
	known := "there is none"
	if len(names) > 0 {
		known = strings.Join(names[:min(len(names), shownViews)], ", ")
		if more := len(names) - shownViews; more > 0 {
			known += fmt.Sprintf(" and %d more", more)
		}
	}
	f.Refuse(w, r, status.New(http.StatusNotFound, fmt.Sprintf("there is no FleetView %q that you may use; those that you may use: %s", name, known)))
	return false
}

// allowed answers a request that the hub does not allow. An annotation of an audit event
// stays as it was first set, so only a refusal sets one here.
func (f *Filters) allowed(w http.ResponseWriter, r *http.Request, a authorizer.Attributes, decision authorizer.Decision, reason string, err error) bool {
	if decision == authorizer.DecisionAllow {
		return true
	}
	if err != nil {
		audit.AddAuditAnnotation(r.Context(), reasonKey, "internal error")
		f.Refuse(w, r, status.New(http.StatusServiceUnavailable, "the hub's kube-apiserver could not be asked whether the request is allowed: try again"))
		return false
	}
	f.Metrics.Rejected.WithLabelValues("forbidden").Inc()
	audit.AddAuditAnnotations(r.Context(), decisionKey, "forbid", reasonKey, reason)
	role := "cluster-proxy-user"
	if s := a.GetSubresource(); s == v1alpha1.MetricsSubresource || s == v1alpha1.TargetsSubresource {
		role = "cluster-proxy-metrics-reader"
	}
	if a.GetResource() == v1alpha1.Sessions {
		role = "cluster-proxy-session-manager"
	}
	if reason != "" {
		reason += "; "
	}
	refused := responsewriters.ForbiddenStatusError(a, reason+"bind a role such as ClusterRole "+role+" on the hub")
	scope.Warn(w.Header(), scope.Of(r.Context()), refused.ErrStatus.Message)
	responsewriters.RespondWithError(w, r, refused, scope.Codecs)
	return false
}
