package proxyapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// member is one cluster of a view, for one request.
type member struct {
	*viewRequest
	cluster, uid string
	// askAgain says that it is long ago that the hub allowed the cluster.
	askAgain bool
}

func (m *member) Name() string { return m.cluster }
func (m *member) UID() string  { return m.uid }

// memberError says to users why a cluster did not answer, and to package fleetview whether it
// may answer in a moment.
type memberError struct {
	message string
	err     error
	away    bool
}

func (e *memberError) Error() string        { return e.message }
func (e *memberError) Unwrap() error        { return e.err }
func (e *memberError) Is(target error) bool { return e.away && target == fault.ErrAway }

// RoundTrip sends a request to the cluster as the user of the view's request.
func (m *member) RoundTrip(r *http.Request) (*http.Response, error) {
	scope, err := m.scopeOf(r)
	if err == nil && httprelay.IsUpgrade(r.Header) {
		err = errNoScope // those are relayed
	}
	if err != nil {
		return nil, m.failed(err)
	}
	if err := m.mayAlso(r.Context(), scope); err != nil {
		return m.refused(r, err)
	}
	m.sentTo.add(m.cluster)
	sent := time.Now()
	resp, err := m.relay.proxy.Transport.RoundTrip(m.outgoing(r, scope))
	if err == nil && !httprelay.WasAskedFor(resp) {
		resp.Body.Close()
		err = fmt.Errorf("status %d was not asked for", resp.StatusCode)
	}
	if err != nil {
		m.metrics.viewClusters.WithLabelValues(m.outcome(r.Context(), err)).Inc()
		return nil, m.failed(err)
	}
	m.metrics.viewClusters.WithLabelValues(answered).Inc()
	m.relay.latencies.observe(m.cluster, time.Since(sent))
	deleteForeign(resp.Header)
	return resp, nil
}

// scopeOf understands a request of package fleetview for the cluster.
func (m *member) scopeOf(r *http.Request) (*requestScope, error) {
	target, err := route.ParseIn(m.cluster, r.URL.RequestURI())
	if err == nil && target.ForService() {
		err = refusal(http.StatusNotFound, "a view has no exposed Services")
	}
	asked := *r
	asked.Host, asked.RequestURI = m.scope.host, r.URL.RequestURI()
	scope, err := newClusterScope(&asked, target, m.scope.group, err)
	scope.user, scope.holder, scope.asked = m.scope.user, m.scope.holder, m.scope.asked
	// Documents of OpenAPI are large.
	scope.discovery = scope.inner != nil && !scope.inner.IsResourceRequest && !strings.HasPrefix(r.URL.Path, "/openapi/")
	// Redirects lead to the cluster's own path, in the endpoint that was asked.
	switch scope.prefix = "/" + m.cluster; {
	case m.scope.isKarmadas():
		scope.prefix = karmadaClustersPath + m.cluster + "/proxy"
	case strings.HasPrefix(m.scope.prefix, viewsPath):
		scope.prefix = clustersPath + m.cluster + "/proxy"
	}
	return scope, err
}

// mayAlso asks the hub about a request that does something else than the view's request:
// a right to that is no right to everything that answering it may take. It also asks again if
// the hub took so long to say what the user may reach that it may not be so any more.
func (m *member) mayAlso(ctx context.Context, scope *requestScope) error {
	if scope.info.Verb == m.scope.info.Verb && (m.scope.leaves || !scope.leaves) && !m.askAgain {
		return nil // members are those for which this was asked
	}
	for _, right := range scope.rights() {
		decision, reason, err := m.authorizer.AuthorizeCluster(ctx, scope.user, right, m.cluster)
		switch {
		case err != nil:
			return errNotAsked
		case decision != authorizer.DecisionAllow:
			a := right.OfCluster(scope.user, m.cluster)
			return refusal(http.StatusForbidden, strings.TrimSpace(fmt.Sprintf("the request needs the right to %s %s/%s of cluster %q on the hub %s",
				a.GetVerb(), a.GetResource(), a.GetSubresource(), m.cluster, reason)))
		}
	}
	return nil
}

// refused is the answer to a request that is not sent, as if the cluster had refused it.
func (m *member) refused(r *http.Request, err error) (*http.Response, error) {
	var refused *hubaccess.RefusedError
	if !errors.As(err, &refused) || refused.Code != http.StatusForbidden {
		return nil, m.failed(err)
	}
	body, err := json.Marshal(newStatus(refused.Code, refused.Message))
	if err != nil {
		return nil, m.failed(err)
	}
	return &http.Response{
		Status: http.StatusText(refused.Code), StatusCode: refused.Code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// outgoing is a request as it is sent: what is between a client and us stays here.
func (m *member) outgoing(r *http.Request, scope *requestScope) *http.Request {
	out := r.Clone(context.WithValue(r.Context(), scopeKey{}, scope))
	out.RequestURI, out.RemoteAddr = "", m.origin.RemoteAddr
	deleteHop(out.Header)
	correlate(m.origin, out.Header)
	m.via.addTo(out.Header)
	return out
}

// perHop are headers of a connection, which RFC 9110, section 7.6.1, keeps proxies from
// passing on.
var perHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func deleteHop(header http.Header) {
	for _, line := range header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			header.Del(strings.TrimSpace(token))
		}
	}
	for _, name := range perHop {
		header.Del(name)
	}
}

// deleteForeign takes off an answer what is not the view's: what is between a cluster
// and us, who the user is there, and where a client should go or what it should keep.
func deleteForeign(header http.Header) {
	deleteHop(header)
	agentapi.Delete(header, agentapi.Forwarded)
	agentapi.Delete(header, []string{agentapi.FrontProxy, agentapi.ForService, agentapi.Impersonate})
	for _, name := range []string{audit.HeaderAuditID, "Via", "Location", "Set-Cookie", "Www-Authenticate", "Alt-Svc", "Strict-Transport-Security"} {
		header.Del(name)
	}
}

// What became of requests to the clusters of a view.
const (
	answered = "answered"
	slow     = "slow"
	failed   = "failed"
	relayed  = "relayed"
)

func (m *member) outcome(ctx context.Context, err error) string {
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil && m.origin.Context().Err() == nil {
		return slow
	}
	return failed
}

// failed is err as users may read it.
func (m *member) failed(err error) error {
	since := m.clusters.AwaySince(m.cluster)
	return &memberError{message: statusFor(err, m.cluster, since).Message, err: err, away: agentclient.IsAway(err, since)}
}
