package relay

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
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Relay sends requests that may go on to clusters, and the answers back.
type Relay struct {
	*filter.Filters
	agents    *agentclient.Client
	Latencies *Latencies
	// Answers are limits of the bytes of answers' bodies that are not read.
	Answers *scope.Limiter
	// Draining is done when watches should go elsewhere.
	Draining context.Context
	Proxy    *httputil.ReverseProxy
}

// NewRelay returns a Relay whose watches end when draining is done.
func NewRelay(draining context.Context, f *filter.Filters, agents *agentclient.Client, l *Latencies, answers *scope.Limiter) *Relay {
	relay := &Relay{Filters: f, agents: agents, Latencies: l, Draining: draining, Answers: answers}
	relay.Proxy = &httputil.ReverseProxy{
		Rewrite:        relay.Rewrite,
		ModifyResponse: relay.ModifyResponse,
		Transport:      httprelay.NoInformational(clusterTransport{agents}),
		FlushInterval:  -1,
		ErrorHandler:   f.Refuse,
		BufferPool:     httprelay.Buffers{},
		ErrorLog:       Discard,
	}
	return relay
}

// ServeHTTP relays a request.
func (l *Relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rs := scope.Of(r.Context())
	rs.Sent = time.Now()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	rs.Cancel = cancel
	paced := NewPacedWriter(w, rs, l.Answers, l.Metrics)
	defer paced.End()
	w, r = httprelay.NoFinalFlush(paced), r.WithContext(ctx)
	if err := l.Sessions.Recorder.Refusal(rs, r.Method); err != nil {
		l.Refuse(w, r, err)
		return
	}
	switch {
	case !httprelay.IsUpgrade(r.Header):
	case !rs.Leaves: // a watch by WebSocket
		upgrade, leave := session.UpgradeWatch(l.Draining, w, rs, cancel)
		defer leave()
		w, r = connect.Upgrade(upgrade, r)
	default:
		upgrade, leave, err := l.Sessions.Upgrade(w, r, rs, cancel)
		if err != nil {
			l.Refuse(w, r, err)
			return
		}
		defer leave()
		w, r = connect.Upgrade(upgrade, r)
	}
	l.Proxy.ServeHTTP(w, r)
}

// Rewrite adds to the request that the agent gets what ties it to this one, for audit
// logs and traces. Its user is set when it is sent.
func (l *Relay) Rewrite(r *httputil.ProxyRequest) {
	Correlate(r.In, r.Out.Header)
	l.Via.Add(r)
	httprelay.RewriteEarlyResponses(r)
}

func (l *Relay) ModifyResponse(resp *http.Response) error {
	rs := scope.Of(resp.Request.Context())
	if !rs.AgentMetrics { // which the kube-apiserver has no part in
		l.Latencies.Observe(rs.Target.Cluster, time.Since(rs.Sent))
	}
	// A worker of a cluster must not reach beyond the cluster's own path.
	resp.Header.Del("Service-Worker-Allowed")
	ConfineCookies(resp.Header, rs.Prefix)
	// The filters set it already; it is the same.
	resp.Header.Del(audit.HeaderAuditID)
	isService := rs.Target.ForService()
	switch {
	case !rs.PassThrough || isService:
	case resp.StatusCode == http.StatusUnauthorized:
		l.Authenticator.RefusedBy(rs.Target.Cluster, rs.Credential)
		l.Metrics.Rejected.WithLabelValues("managed-cluster").Inc()
		if rs.Credential != "" {
			drainSmall(resp)
			return filter.NotAccepted
		}
	case resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests:
		l.Authenticator.AcceptedBy(rs.Target.Cluster, rs.Credential)
	}
	if !httprelay.WasAskedFor(resp) {
		// The client's next bytes would be taken for another client's.
		return status.New(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with status %d, which the request did not ask for", rs.Target.Cluster, resp.StatusCode))
	}
	if err := checkRedirect(resp, rs, isService); err != nil {
		return err
	}
	if rs.Inner.Verb == "watch" && resp.StatusCode == http.StatusOK {
		endOnDrain(l.Draining, resp, rs.Cancel)
	}
	if !rs.Long {
		httprelay.Coalesce(resp)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		rs.Upgraded = resp.Header
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
func checkRedirect(resp *http.Response, rs *scope.Scope, isService bool) error {
	locations := resp.Header["Location"]
	if len(locations) == 0 || resp.StatusCode != http.StatusCreated && (resp.StatusCode < 300 || resp.StatusCode > 399) {
		return nil
	}
	if len(locations) > 1 {
		// Clients disagree about which of several they follow.
		return status.New(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with %d Location headers, of which none is followed", rs.Target.Cluster, len(locations)))
	}
	base := &url.URL{Path: rs.Target.Decoded(), RawPath: rs.Target.Path}
	to, err := base.Parse(locations[0])
	prefix := rs.Prefix
	if err == nil && isService {
		to, prefix = toItself(to, rs)
	}
	if err == nil && slices.ContainsFunc(strings.Split(to.Path, "/"), func(s string) bool { return s == "." || s == ".." }) {
		err = errors.New("the path has an encoded dot segment, which browsers resolve")
	}
	if err == nil && !rs.AgentMetrics && to.Scheme == "" && to.Host == "" && strings.HasPrefix(to.EscapedPath(), "/") && !strings.HasPrefix(to.EscapedPath(), "//") {
		resp.Header.Set("Location", prefix+to.String())
		return nil
	}
	if err == nil && isService && (to.Scheme == "" || to.Scheme == "http" || to.Scheme == "https") && to.Hostname() != "" && !sameHost(to.Host, rs.Host) {
		return nil // a Service may send browsers elsewhere, for example to log in
	}
	return status.New(http.StatusBadGateway, fmt.Sprintf("cluster %q answered with a redirect to another place, which is not followed", rs.Target.Cluster))
}

// toItself takes the host off a redirect of a Service to itself, which it knows by the name that
// the agent calls it: <service>.<namespace>.svc. The prefix is where clients find the port and the
// scheme that the redirect has. Many servers leave a port out that is not the scheme's own.
func toItself(to *url.URL, rs *scope.Scope) (*url.URL, string) {
	s := rs.Target.Service
	if !strings.Contains(rs.Prefix, "/services/") || !sameHost(to.Host, s.Service+"."+s.Namespace+".svc") || to.Opaque != "" || to.User != nil {
		return to, rs.Prefix
	}
	there := s
	if to.Scheme == "http" || to.Scheme == "https" {
		there.Protocol = to.Scheme
	}
	switch port := to.Port(); {
	case port == "" && there.Protocol != s.Protocol:
		there.Port = map[string]string{"http": "80", "https": "443"}[there.Protocol]
	case port != "" && strings.Trim(s.Port, "0123456789") == "" && s.Port != "": // of one by name the number is not known
		there.Port = port
	}
	path := *to
	path.Scheme, path.Host = "", ""
	if path.Path == "" {
		path.Path = "/"
	}
	if there == s {
		return &path, rs.Prefix
	}
	services := rs.Prefix[:strings.LastIndex(rs.Prefix, "/services/")] + "/services/"
	return &path, services + there.Protocol + ":" + there.Service + ":" + there.Port + "/proxy-service"
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

// Discard is where net/http logs. Its messages are about clients that went
// away and port scans.
var Discard = log.New(io.Discard, "", 0)
