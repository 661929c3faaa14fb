package proxyapi

import (
	"context"
	"net/http"
	"runtime/debug"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

// newChain makes the filters, innermost first. They are those of every API
// server, in that order, but for two things: a caller whom the hub does not know
// skips impersonation and authorization, and nothing bounds a request's time,
// which the managed kube-apiserver does.
func (h *handler) newChain(config *server.Config, traced bool) http.Handler {
	chain := http.Handler(http.HandlerFunc(h.serve))
	chain = h.revalidated(chain)
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

// newRefusal answers and audits requests that newCall does not understand, of
// which no user is known.
func (h *handler) newRefusal(config *server.Config) http.Handler {
	refusal := filters.WithAudit(http.HandlerFunc(h.unauthenticated), config.AuditBackend, config.AuditPolicyRuleEvaluator, nil)
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

// impersonated checks Impersonate-* headers of the hub's users on the hub, and
// takes them off. Those of others are the managed cluster's business.
//
// Constrained impersonation is for verbs and resources, and a request that
// leaves the Kubernetes API does two things: what it is, and a stream. So it is
// checked for both.
func (h *handler) impersonated(next http.Handler) http.Handler {
	checked := impersonation.WithConstrainedImpersonation(next, h.authorizer, codecs)
	type mayStreamKey struct{}
	forStreams := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if mayStream, ok := r.Context().Value(mayStreamKey{}).(*bool); ok {
			*mayStream = true
		}
	}), h.authorizer, codecs)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		if c.passThrough {
			next.ServeHTTP(w, r)
			return
		}
		if c.leaves {
			mayStream := false
			ctx := context.WithValue(request.WithRequestInfo(r.Context(), streamInfo(c.info)), mayStreamKey{}, &mayStream)
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
