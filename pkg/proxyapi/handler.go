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
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/ui"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/view"
)

// handler serves all endpoints: see the package comment for the way of a request.
type handler struct {
	*filter.Filters
	relay     *relay.Relay
	connector *relay.Connector
	fleet     *view.Fleet
	endpoints scope.Endpoints
	// revalidation is nil if streams are not looked at again.
	revalidation *filter.Revalidation
	exposure     *filter.Exposure

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
	httprelay.IgnoreH2C(r.Header)
	h.inFlight.Add(1)
	defer h.inFlight.Add(-1)
	defer logPanic(r)
	// At a cluster's own host these are the cluster's.
	_, there := scope.ClusterOfHost(r.Host, h.endpoints.Domain)
	switch {
	case there:
	case r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/healthz":
		h.probes.ServeHTTP(w, r)
		return
	case h.page != nil && ui.Owns(r.URL.Path):
		h.page.ServeHTTP(w, r)
		return
	}
	rs, err := h.endpoints.NewScope(r)
	if !there && rs.Kind != scope.Own {
		// A document of a cluster must not share an origin with other clusters, to which it could
		// send requests as its reader, nor with the page, in whose place it could ask for tokens.
		// ReverseProxy adds the cluster's own policy to this one.
		w.Header().Set("Content-Security-Policy", ui.Sandbox)
	}
	if err == nil {
		err = scope.CheckSize(r)
	}
	if err == nil {
		err = filter.CheckSite(r)
	}
	if rs.Long && h.revalidation != nil {
		rs.Asked = filter.KeepAsked(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), scope.Key{}, rs))
	instrumented := filter.Instrument(w, rs, h.Metrics, h.Clusters)
	// Deferred, because ReverseProxy panics to cut a response off.
	defer instrumented.End()
	measured := responsewriter.WrapForHTTP1Or2(instrumented)
	if err != nil {
		rs.Failure = err
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
	chain = h.revalidation.WithRevalidation(chain)
	chain = h.exposure.WithExposure(chain)
	chain = h.WithPolicies(chain)
	chain = h.WithAdmission(chain)
	chain = h.WithInflightLimits(chain)
	chain = h.WithAuthorization(chain)
	chain = h.WithImpersonation(chain)
	chain = filter.WithAuditAnnotations(chain)
	chain = filters.WithAudit(chain, config.AuditBackend, config.AuditPolicyRuleEvaluator, scope.LongRunning)
	if traced {
		chain = filters.WithTracing(chain, config.TracerProvider)
	}
	failed := filters.WithFailedAuthenticationAudit(http.HandlerFunc(h.Unauthenticated), config.AuditBackend, config.AuditPolicyRuleEvaluator)
	chain = h.WithAuthentication(chain, failed)
	chain = filters.WithRequestReceivedTimestamp(chain)
	chain = scope.WithRequestInfo(chain)
	return filters.WithAuditInit(chain)
}

// serve answers a request that may go on.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	switch rs := scope.Of(r.Context()); {
	case rs.Kind == scope.Own && rs.Long:
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(h.relay.Draining, end)()
		h.own.ServeHTTP(w, r.WithContext(ctx))
	case rs.Kind == scope.Own:
		filters.WithWarningRecorder(h.own).ServeHTTP(w, r)
	case rs.Kind == scope.View:
		h.fleet.ServeHTTP(w, r)
	case rs.Kind != scope.Cluster:
		h.Refuse(w, r, scope.ErrNoScope)
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
