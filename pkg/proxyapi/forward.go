package proxyapi

import (
	"context"
	"errors"
	"fmt"
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

	"open-cluster-management.io/cluster-proxy/pkg/earlyanswer"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

func (h *handler) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r); earlyanswer.Rewrite(r) },
		ModifyResponse: h.modifyResponse,
		Transport:      h.pool,
		FlushInterval:  -1,
		ErrorHandler:   h.refuse,
		BufferPool:     &buffers{},
		ErrorLog:       discard,
	}
}

// vouched are headers with which a proxy speaks about somebody else. Only the
// next hop's own proxy may.
var vouched = []string{"X-Remote-", "Cluster-Proxy-", "X-Real-Ip", "X-Forwarded-", "Forwarded"}

// claimed are headers that say who a request is from. They go no further than
// the hub if the hub knows it.
var claimed = []string{"Authorization", "Impersonate-"}

// deleteHeaders deletes headers by the beginnings of their names. Some servers
// take an underscore for a hyphen, so it is one here.
func deleteHeaders(header http.Header, prefixes []string) {
	for name := range header {
		canonical := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		for _, prefix := range prefixes {
			if strings.HasPrefix(canonical, prefix) {
				delete(header, name)
			}
		}
	}
}

// rewrite makes the request that the agent gets: first everything is deleted
// that says who somebody is, then it is set.
func rewrite(r *httputil.ProxyRequest) {
	c := callOf(r.In.Context())
	r.Out.URL.Scheme = "https"
	r.Out.URL.Host = net.JoinHostPort(identity.HandlerHost(c.target.Cluster), identity.HandlerPort)
	r.Out.Host = r.Out.URL.Host
	header := r.Out.Header
	deleteHeaders(header, vouched)
	if c.user != nil {
		deleteHeaders(header, claimed)
		deleteWebSocketTokens(header)
		u := c.user
		transport.SetAuthProxyHeaders(r.Out, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
	}
	if err := c.target.Apply(r.Out.URL); err != nil || c.user == nil && !c.passThrough {
		// Nobody decided about this request. A host that the pool does not know
		// fails it.
		r.Out.URL.Host = ""
		return
	}
	setService(header, c.target.Service)
	if id := apiaudit.GetAuditIDTruncated(r.In.Context()); id != "" {
		header.Set(audit.HeaderAuditID, id)
	}
	propagation.TraceContext{}.Inject(r.In.Context(), propagation.HeaderCarrier(header))
	if host, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		header.Set("X-Forwarded-For", host)
	}
}

func setService(header http.Header, s route.Service) {
	if s == (route.Service{}) {
		return
	}
	header.Set("Cluster-Proxy-Proto", s.Scheme)
	header.Set("Cluster-Proxy-Namespace", s.Namespace)
	header.Set("Cluster-Proxy-Service", s.Name)
	header.Set("Cluster-Proxy-Port", s.Port)
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
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, webSocketToken) {
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
	isService := c.target.Service != (route.Service{})
	switch {
	case !c.passThrough || isService:
	case resp.StatusCode == http.StatusUnauthorized:
		h.callers.strangers.forget(c.credential)
		h.metrics.denied.WithLabelValues("managed-cluster").Inc()
	default:
		h.callers.strangers.trust(c.credential)
	}
	if err := checkRedirect(resp, c, isService); err != nil {
		return err
	}
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok && c.inner.Verb == "watch" && resp.StatusCode == http.StatusOK {
		endOnDrain(h.draining, resp, cancel)
	}
	return nil
}

// checkRedirect keeps a redirect within what was asked for. A cluster that could
// send clients to another place would have them take their credentials there
// (CVE-2022-3172), or ask another cluster behind the same door for something.
func checkRedirect(resp *http.Response, c *call, isService bool) error {
	location := resp.Header.Get("Location")
	if location == "" || resp.StatusCode < 300 || resp.StatusCode > 399 {
		return nil
	}
	base := &url.URL{Path: c.target.Decoded(), RawPath: c.target.Path}
	to, err := base.Parse(location)
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
	return &problem{http.StatusBadGateway, fmt.Sprintf("cluster %q answered with a redirect to another place, which is not followed", c.target.Cluster)}
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
		return nil, &problem{http.StatusBadRequest, "the request has no target"}
	}
	a := p.agent(c.target.Cluster)
	if isUpgrade(r) {
		return a.upgrades.RoundTrip(r)
	}
	return a.requests.RoundTrip(r)
}
