package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"k8s.io/apiserver/pkg/apis/audit"
	apiaudit "k8s.io/apiserver/pkg/audit"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

func (h *handler) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        h.rewrite,
		ModifyResponse: h.modifyResponse,
		Transport:      httprelay.NoInformational(agents{h.agents}),
		FlushInterval:  -1,
		ErrorHandler:   h.refuse,
		BufferPool:     httprelay.Buffers{},
		ErrorLog:       discard,
	}
}

// rewrite adds to the request that the agent gets what ties it to this one, for audit
// logs and traces. Who it is from is set when it is sent.
func (h *handler) rewrite(r *httputil.ProxyRequest) {
	correlate(r.In, r.Out.Header)
	h.via.add(r)
	httprelay.RewriteEarlyResponses(r)
}

// correlate gives header the IDs of a request's audit event and trace.
func correlate(r *http.Request, header http.Header) {
	if id := apiaudit.GetAuditIDTruncated(r.Context()); id != "" {
		header.Set(audit.HeaderAuditID, id)
	}
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(header))
}

// agents sends requests to the cluster, and as the user, of the call in their context.
type agents struct{ client *agentclient.Client }

func (a agents) RoundTrip(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	if err := c.target.Apply(r.URL); err != nil {
		return nil, err
	}
	return a.client.RoundTrip(r, c.to(), c.identity())
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
		httprelay.Coalesce(resp)
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
