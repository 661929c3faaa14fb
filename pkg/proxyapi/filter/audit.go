package filter

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// WithAuditAnnotations adds to audit events what cannot be seen from outside.
func WithAuditAnnotations(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rs := scope.Of(r.Context()); rs.Kind {
		case scope.Cluster:
			audit.AddAuditAnnotations(r.Context(), scope.AnnotationPrefix+"cluster", rs.Target.Cluster, scope.AnnotationPrefix+"request", innerText(r, rs))
		case scope.View: // its clusters are added when they were asked
			audit.AddAuditAnnotations(r.Context(), scope.AnnotationPrefix+"view", rs.Target.View, scope.AnnotationPrefix+"request", innerText(r, rs))
		}
		next.ServeHTTP(w, r)
	})
}

// innerText is the request as the cluster sees it, for audit events.
func innerText(r *http.Request, rs *scope.Scope) string {
	if r.Method == http.MethodConnect {
		return r.Method + " " + r.Host
	}
	text := r.Method + " " + rs.Target.Path + rs.Target.Query
	if rs.Target.ForService() {
		text += " of " + rs.Target.Service.String()
	}
	if rs.AgentMetrics {
		text += " of the agent"
	}
	if rs.Search {
		text += " of the fleet index"
	}
	return text
}

// NewRefusal answers and audits requests that newScope does not understand, whose user
// is not known.
func (f *Filters) NewRefusal(config *server.Config) http.Handler {
	refusal := filters.WithAudit(http.HandlerFunc(f.Unauthenticated), config.AuditBackend, config.AuditPolicyRuleEvaluator, nil)
	return filters.WithAuditInit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The event says what was asked for, within limits: anybody can cause it.
		u := *r.URL
		if len(u.Path)+len(u.RawQuery) > MaxRefusedURL {
			u.Path, u.RawPath, u.RawQuery = u.Path[:min(len(u.Path), MaxRefusedURL)], "", ""
		}
		ctx := request.WithRequestInfo(request.WithUser(r.Context(), Anonymous), &request.RequestInfo{Path: u.Path, Verb: strings.ToLower(r.Method)})
		r = r.WithContext(ctx)
		r.URL = &u
		refusal.ServeHTTP(w, r)
	}))
}

// MaxRefusedURL is how much of a refused URL is in its audit event.
const MaxRefusedURL = 1 << 10
