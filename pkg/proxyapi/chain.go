package proxyapi

import (
	"net/http"
	"runtime/debug"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
)

// newChain makes the filters, innermost first. They are those of every API
// server, in that order, but for two things: a caller whom the hub does not know
// skips impersonation and authorization, and nothing bounds a request's time,
// which the managed kube-apiserver does.
func (h *handler) newChain(config *server.Config, traced bool) http.Handler {
	chain := http.Handler(http.HandlerFunc(h.serve))
	chain = h.admitted(chain)
	chain = h.limited(chain)
	chain = h.authorized(chain)
	chain = h.impersonated(chain)
	chain = annotated(chain)
	chain = filters.WithAudit(chain, config.AuditBackend, config.AuditPolicyRuleEvaluator, longRunning)
	if traced {
		chain = filters.WithTracing(chain, config.TracerProvider)
	}
	failed := filters.WithFailedAuthenticationAudit(http.HandlerFunc(h.unauthenticated), config.AuditBackend, config.AuditPolicyRuleEvaluator)
	chain = h.authenticated(chain, failed)
	chain = filters.WithRequestReceivedTimestamp(chain)
	chain = withRequestInfo(chain)
	return filters.WithAuditInit(chain)
}

func longRunning(r *http.Request, _ *request.RequestInfo) bool { return callOf(r.Context()).long }

// withRequestInfo tells the filters what newCall found out.
func withRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), callOf(r.Context()).info)))
	})
}

// impersonated checks Impersonate-* headers of the hub's users on the hub, and
// takes them off. Those of others are the managed cluster's business.
func (h *handler) impersonated(next http.Handler) http.Handler {
	checked := impersonation.WithConstrainedImpersonation(next, h.authorizer, codecs)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if callOf(r.Context()).passThrough {
			next.ServeHTTP(w, r)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// logPanic tells of a bug. net/http ends the connection then, as it does when
// ReverseProxy cuts a response off.
func logPanic(r *http.Request) {
	if reason := recover(); reason != nil {
		if reason != http.ErrAbortHandler {
			klog.FromContext(r.Context()).Error(nil, "Panic while serving a request", "reason", reason, "stack", string(debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}
}
