package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/audit"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// relay sends requests that may go on to clusters, and the answers back.
type relay struct {
	*requestFilters
	agents    *agentclient.Client
	latencies *latencies
	// answers are limits of the bytes of answers' bodies that are not read.
	answers *limiter
	// draining is done when watches should go elsewhere.
	draining context.Context
	proxy    *httputil.ReverseProxy
}

func newRelay(draining context.Context, f *requestFilters, agents *agentclient.Client, l *latencies, answers *limiter) *relay {
	relay := &relay{requestFilters: f, agents: agents, latencies: l, draining: draining, answers: answers}
	relay.proxy = &httputil.ReverseProxy{
		Rewrite:        relay.rewrite,
		ModifyResponse: relay.modifyResponse,
		Transport:      httprelay.NoInformational(clusterTransport{agents}),
		FlushInterval:  -1,
		ErrorHandler:   f.refuse,
		BufferPool:     httprelay.Buffers{},
		ErrorLog:       discard,
	}
	return relay
}

// ServeHTTP relays a request.
func (l *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope := scopeOf(r.Context())
	scope.sent = time.Now()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	scope.cancel = cancel
	paced := newPacedWriter(w, scope, l.answers, l.metrics)
	defer paced.end()
	w, r = httprelay.NoFinalFlush(paced), r.WithContext(ctx)
	if err := l.sessions.recorder.refusal(scope, r.Method); err != nil {
		l.refuse(w, r, err)
		return
	}
	if httprelay.IsUpgrade(r.Header) {
		upgrade, leave, err := l.sessions.upgrade(w, r, scope, cancel)
		if err != nil {
			l.refuse(w, r, err)
			return
		}
		defer leave()
		w, r = connect.Upgrade(upgrade, r)
	}
	l.proxy.ServeHTTP(w, r)
}

// rewrite adds to the request that the agent gets what ties it to this one, for audit
// logs and traces. Who it is from is set when it is sent.
func (l *relay) rewrite(r *httputil.ProxyRequest) {
	correlate(r.In, r.Out.Header)
	l.via.add(r)
	httprelay.RewriteEarlyResponses(r)
}

func (l *relay) modifyResponse(resp *http.Response) error {
	scope := scopeOf(resp.Request.Context())
	if !scope.agentMetrics { // which the kube-apiserver has no part in
		l.latencies.observe(scope.target.Cluster, time.Since(scope.sent))
	}
	// A worker of a cluster must not reach beyond the cluster's own path.
	resp.Header.Del("Service-Worker-Allowed")
	confineCookies(resp.Header, scope.prefix)
	// The filters set it already; it is the same.
	resp.Header.Del(audit.HeaderAuditID)
	isService := scope.target.ForService()
	switch {
	case !scope.passThrough || isService:
	case resp.StatusCode == http.StatusUnauthorized:
		l.authenticator.RefusedBy(scope.target.Cluster, scope.credential)
		l.metrics.rejected.WithLabelValues("managed-cluster").Inc()
		if scope.credential != "" {
			drainSmall(resp)
			return notAccepted
		}
	case resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests:
		l.authenticator.AcceptedBy(scope.target.Cluster, scope.credential)
	}
	if !httprelay.WasAskedFor(resp) {
		// The client's next bytes would be taken for another client's.
		return refusal(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with status %d, which the request did not ask for", scope.target.Cluster, resp.StatusCode))
	}
	if err := checkRedirect(resp, scope, isService); err != nil {
		return err
	}
	if scope.inner.Verb == "watch" && resp.StatusCode == http.StatusOK {
		endOnDrain(l.draining, resp, scope.cancel)
	}
	if !scope.long {
		httprelay.Coalesce(resp)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		scope.upgraded = resp.Header
	}
	connect.Upgraded(resp)
	return nil
}

// drainSmall reads the short body of an answer that is not passed on, so that
// the connection can be used again.
func drainSmall(resp *http.Response) {
	if resp.ContentLength >= 0 && resp.ContentLength <= 4<<10 {
		_, _ = io.CopyN(io.Discard, resp.Body, resp.ContentLength)
	}
}

// checkRedirect keeps a redirect, or the place of what was created, within what
// was asked for. A cluster that could
// send clients to another place would have them take their credentials there
// (CVE-2022-3172), or send requests to another cluster at this endpoint.
func checkRedirect(resp *http.Response, scope *requestScope, isService bool) error {
	locations := resp.Header["Location"]
	if len(locations) == 0 || resp.StatusCode != http.StatusCreated && (resp.StatusCode < 300 || resp.StatusCode > 399) {
		return nil
	}
	if len(locations) > 1 {
		// Clients disagree about which of several they follow.
		return refusal(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with %d Location headers, of which none is followed", scope.target.Cluster, len(locations)))
	}
	base := &url.URL{Path: scope.target.Decoded(), RawPath: scope.target.Path}
	to, err := base.Parse(locations[0])
	if err == nil && slices.ContainsFunc(strings.Split(to.Path, "/"), func(s string) bool { return s == "." || s == ".." }) {
		err = errors.New("the path has an encoded dot segment, which browsers resolve")
	}
	if err == nil && !scope.agentMetrics && to.Scheme == "" && to.Host == "" && strings.HasPrefix(to.EscapedPath(), "/") && !strings.HasPrefix(to.EscapedPath(), "//") {
		resp.Header.Set("Location", scope.prefix+to.String())
		return nil
	}
	if err == nil && isService && (to.Scheme == "http" || to.Scheme == "https") && to.Hostname() != "" && !sameHost(to.Host, scope.host) {
		return nil // a Service may send browsers elsewhere, for example to log in
	}
	return refusal(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with a redirect to another place, which is not followed", scope.target.Cluster))
}

// sameHost compares hosts without their ports: another spelling of the port is
// the same endpoint.
func sameHost(a, b string) bool {
	name := func(host string) string {
		u := url.URL{Host: host}
		return strings.TrimSuffix(u.Hostname(), ".")
	}
	return strings.EqualFold(name(a), name(b))
}

// discard is where net/http logs. What it has to say is about clients that went
// away and port scans.
var discard = log.New(io.Discard, "", 0)
