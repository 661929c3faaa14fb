package proxyapi

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
)

// withAuditAnnotations adds to audit events what cannot be seen from outside.
func withAuditAnnotations(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch scope := scopeOf(r.Context()); scope.kind {
		case clusterScope:
			audit.AddAuditAnnotations(r.Context(), annotationPrefix+"cluster", scope.target.Cluster, annotationPrefix+"request", innerText(r, scope))
		case viewScope: // its clusters are added when they were asked
			audit.AddAuditAnnotations(r.Context(), annotationPrefix+"view", scope.target.View, annotationPrefix+"request", innerText(r, scope))
		}
		next.ServeHTTP(w, r)
	})
}

// innerText is the request as the cluster sees it, for audit events.
func innerText(r *http.Request, scope *requestScope) string {
	if r.Method == http.MethodConnect {
		return r.Method + " " + r.Host
	}
	text := r.Method + " " + scope.target.Path + scope.target.Query
	if scope.target.ForService() {
		text += " of " + scope.target.Service.String()
	}
	if scope.agentMetrics {
		text += " of the agent"
	}
	return text
}

// newRefusal answers and audits requests that newScope does not understand, whose user
// is not known.
func (f *requestFilters) newRefusal(config *server.Config) http.Handler {
	refusal := filters.WithAudit(http.HandlerFunc(f.unauthenticated), config.AuditBackend, config.AuditPolicyRuleEvaluator, nil)
	return filters.WithAuditInit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The event says what was asked for, within limits: anybody can cause it.
		u := *r.URL
		if len(u.Path)+len(u.RawQuery) > maxRefusedURL {
			u.Path, u.RawPath, u.RawQuery = u.Path[:min(len(u.Path), maxRefusedURL)], "", ""
		}
		ctx := request.WithRequestInfo(request.WithUser(r.Context(), anonymous), &request.RequestInfo{Path: u.Path, Verb: strings.ToLower(r.Method)})
		r = r.WithContext(ctx)
		r.URL = &u
		refusal.ServeHTTP(w, r)
	}))
}

// maxRefusedURL is how much of a refused URL is in its audit event.
const maxRefusedURL = 1 << 10
