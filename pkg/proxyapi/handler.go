package proxyapi

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/ui"
)

// handler serves all endpoints: see the package comment for the way of a request.
type handler struct {
	*requestFilters
	relay     *relay
	connector *connector
	fleet     *fleet
	endpoints endpoints
	// revalidation is nil if streams are not looked at again.
	revalidation *revalidation
	exposure     *exposure

	// chain is what a request goes through that was understood.
	chain http.Handler
	// refusal answers requests that were not.
	refusal http.Handler
	// own answers requests that are for the proxy API itself.
	own    http.Handler
	probes http.Handler
	// page is the one for people; nil if there is none.
	page http.Handler
	// inFlight counts requests, those with a hijacked connection included.
	inFlight atomic.Int64
}

// busy returns how many requests are in flight.
func (h *handler) busy() int { return int(h.inFlight.Load()) }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httprelay.GrowStack()
	h.inFlight.Add(1)
	defer h.inFlight.Add(-1)
	defer logPanic(r)
	// At a cluster's own host these are the cluster's.
	_, there := clusterOfHost(r.Host, h.endpoints.domain)
	switch {
	case there:
	case r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/healthz":
		h.probes.ServeHTTP(w, r)
		return
	case h.page != nil && ui.Owns(r.URL.Path):
		h.page.ServeHTTP(w, r)
		return
	}
	scope, err := h.endpoints.newScope(r)
	if !there && scope.kind != ownScope {
		// A document of a cluster must not share an origin with other clusters, to which it could
		// send requests as its reader, nor with the page, in whose place it could ask for tokens.
		// ReverseProxy adds the cluster's own policy to this one.
		w.Header().Set("Content-Security-Policy", ui.Sandbox)
	}
	if err == nil {
		err = checkSize(r)
	}
	if err == nil {
		err = checkSite(r)
	}
	if scope.long && h.revalidation != nil {
		scope.asked = keepAsked(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), scopeKey{}, scope))
	instrumented := instrument(w, scope, h.metrics, h.clusters)
	// Deferred, because ReverseProxy panics to cut a response off.
	defer instrumented.end()
	measured := responsewriter.WrapForHTTP1Or2(instrumented)
	if err != nil {
		scope.failure = err
		h.refusal.ServeHTTP(measured, r)
		return
	}
	h.chain.ServeHTTP(measured, r)
}

// newChain makes the filters, innermost first. They are those of every API
// server, in that order, but for two things: a caller whom the hub does not know
// skips impersonation and authorization, and nothing bounds a request's time,
// which the managed kube-apiserver does.
func (h *handler) newChain(config *server.Config, traced bool) http.Handler {
	chain := http.Handler(http.HandlerFunc(h.serve))
	chain = h.revalidation.withRevalidation(chain)
	chain = h.exposure.withExposure(chain)
	chain = h.withAdmission(chain)
	chain = h.withInflightLimits(chain)
	chain = h.withAuthorization(chain)
	chain = h.withImpersonation(chain)
	chain = withAuditAnnotations(chain)
	chain = filters.WithAudit(chain, config.AuditBackend, config.AuditPolicyRuleEvaluator, longRunning)
	if traced {
		chain = filters.WithTracing(chain, config.TracerProvider)
	}
	failed := filters.WithFailedAuthenticationAudit(http.HandlerFunc(h.unauthenticated), config.AuditBackend, config.AuditPolicyRuleEvaluator)
	chain = h.withAuthentication(chain, failed)
	chain = filters.WithRequestReceivedTimestamp(chain)
	chain = withRequestInfo(chain)
	return filters.WithAuditInit(chain)
}

// serve answers a request that may go on.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	switch scope := scopeOf(r.Context()); {
	case scope.kind == ownScope && scope.long:
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(h.relay.draining, end)()
		h.own.ServeHTTP(w, r.WithContext(ctx))
	case scope.kind == ownScope:
		filters.WithWarningRecorder(h.own).ServeHTTP(w, r)
	case scope.kind == viewScope:
		h.fleet.ServeHTTP(w, r)
	case scope.kind != clusterScope:
		h.refuse(w, r, errNoScope)
	case r.Method == http.MethodConnect:
		h.connector.ServeHTTP(w, r)
	default:
		h.relay.ServeHTTP(w, r)
	}
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
