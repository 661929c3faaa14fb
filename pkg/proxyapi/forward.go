package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"k8s.io/apiserver/pkg/apis/audit"
	apiaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/client-go/transport"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func (h *handler) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r); h.via.add(r); httprelay.RewriteEarlyResponses(r) },
		ModifyResponse: h.modifyResponse,
		Transport:      httprelay.NoInformational(h.pool),
		FlushInterval:  -1,
		ErrorHandler:   h.refuse,
		BufferPool:     httprelay.Buffers{},
		ErrorLog:       discard,
	}
}

// assertions are headers that only the proxy API sends to agents.
var assertions = []string{agentapi.Asserted, agentapi.ForService}

// claimed are headers that say who a request is from. They go no further than
// the hub if the hub knows it.
var claimed = []string{"Authorization", agentapi.Impersonate}

// rewrite makes the request that the agent gets.
func rewrite(r *httputil.ProxyRequest) {
	c := callOf(r.In.Context())
	r.Out.URL.Scheme = "https"
	r.Out.URL.Host = net.JoinHostPort(identity.HandlerHost(c.target.Cluster), identity.HandlerPort)
	r.Out.Host = r.Out.URL.Host
	if err := errors.Join(c.target.Apply(r.Out.URL), vouch(c, r.In, r.Out)); err != nil {
		// A host that the pool does not know fails it.
		r.Out.URL.Host = ""
	}
}

// vouch says to the agent who a request is from: first everything is deleted
// that says so, then it is set. With an error nobody decided about the request,
// and it must not be sent.
func vouch(c *call, in, out *http.Request) error {
	header := out.Header
	agentapi.Delete(header, agentapi.Vouched)
	agentapi.Delete(header, assertions)
	switch {
	case c.user != nil:
		agentapi.Delete(header, claimed)
		deleteWebSocketTokens(header)
		transport.SetAuthProxyHeaders(out, c.user.GetName(), c.user.GetUID(), c.user.GetGroups(), c.user.GetExtra())
	case !c.passThrough:
		return errors.New("nobody decided about the request")
	}
	agentapi.SetService(header, c.target.Service)
	if c.login != "" {
		header.Set(agentapi.ServiceAuthorization, c.login)
	}
	if id := apiaudit.GetAuditIDTruncated(in.Context()); id != "" {
		header.Set(audit.HeaderAuditID, id)
	}
	propagation.TraceContext{}.Inject(in.Context(), propagation.HeaderCarrier(header))
	if host, _, err := net.SplitHostPort(in.RemoteAddr); err == nil {
		header.Set("X-Forwarded-For", host)
	}
	return nil
}

// deleteWebSocketTokens keeps the WebSocket protocols that are no tokens.
func deleteWebSocketTokens(header http.Header) {
	lines := header["Sec-Websocket-Protocol"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, agentapi.WebSocketToken) {
				kept = append(kept, protocol)
			}
		}
	}
	if header.Del("Sec-Websocket-Protocol"); len(kept) > 0 {
		header.Set("Sec-Websocket-Protocol", strings.Join(kept, ", "))
	}
}

func (h *handler) modifyResponse(resp *http.Response) error {
	ctx := resp.Request.Context()
	c := callOf(ctx)
	h.latencies.observe(c.target.Cluster, time.Since(c.sent))
	// The filters set it already; it is the same.
	resp.Header.Del(audit.HeaderAuditID)
	isService := c.target.ForService()
	switch {
	case !c.passThrough || isService:
	case resp.StatusCode == http.StatusUnauthorized:
		h.authenticator.RefusedBy(c.target.Cluster, c.credential)
		h.metrics.denied.WithLabelValues("managed-cluster").Inc()
		if c.credential != "" {
			drainSmall(resp)
			return notAccepted
		}
	case resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests:
		h.authenticator.AcceptedBy(c.target.Cluster, c.credential)
	}
	if !httprelay.WasAskedFor(resp) {
		// What the client sends next would be somebody else's.
		return refusal(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with status %d, which nobody asked for", c.target.Cluster, resp.StatusCode))
	}
	if err := checkRedirect(resp, c, isService); err != nil {
		return err
	}
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok && c.inner.Verb == "watch" && resp.StatusCode == http.StatusOK {
		endOnDrain(h.draining, resp, cancel)
	}
	if !c.long {
		httprelay.Gather(resp)
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
// (CVE-2022-3172), or ask another cluster behind the same door for something.
func checkRedirect(resp *http.Response, c *call, isService bool) error {
	locations := resp.Header["Location"]
	if len(locations) == 0 || resp.StatusCode != http.StatusCreated && (resp.StatusCode < 300 || resp.StatusCode > 399) {
		return nil
	}
	if len(locations) > 1 {
		// Clients disagree about which of several they follow.
		return refusal(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with %d Location headers, of which none is followed", c.target.Cluster, len(locations)))
	}
	base := &url.URL{Path: c.target.Decoded(), RawPath: c.target.Path}
	to, err := base.Parse(locations[0])
	if err == nil && slices.ContainsFunc(strings.Split(to.Path, "/"), func(s string) bool { return s == "." || s == ".." }) {
		err = errors.New("the path has an encoded dot segment, which browsers resolve")
	}
	if err == nil && to.Scheme == "" && to.Host == "" && strings.HasPrefix(to.EscapedPath(), "/") && !strings.HasPrefix(to.EscapedPath(), "//") {
		resp.Header.Set("Location", c.prefix+to.String())
		return nil
	}
	if err == nil && isService && (to.Scheme == "http" || to.Scheme == "https") && to.Hostname() != "" && !sameHost(to.Host, c.host) {
		return nil // a Service may send browsers elsewhere, for example to log in
	}
	return refusal(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with a redirect to another place, which is not followed", c.target.Cluster))
}

// sameHost compares hosts without their ports: another spelling of the port is
// the same door.
func sameHost(a, b string) bool {
	name := func(host string) string {
		u := url.URL{Host: host}
		return strings.TrimSuffix(u.Hostname(), ".")
	}
	return strings.EqualFold(name(a), name(b))
}

// RoundTrip sends a request to the agent of the cluster in its context.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	if c.target.Cluster == "" || r.URL.Host == "" {
		return nil, refusal(http.StatusBadRequest, "the request has no target")
	}
	a := p.agent(c.target.Cluster)
	if httprelay.IsUpgrade(r.Header) {
		return a.upgrades.RoundTrip(r)
	}
	switch {
	case c.inner != nil && c.inner.Verb == "watch":
		return a.watch(r)
	case c.long || !httprelay.Fits(r):
		return a.roundTrip(r)
	}
	return a.read(r)
}
