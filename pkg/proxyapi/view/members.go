package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Member is one cluster of a view, for one request.
type Member struct {
	*ViewRequest
	Cluster, uid string
	// AskAgain says that it is long ago that the hub allowed the cluster.
	AskAgain bool
}

func (m *Member) Name() string { return m.Cluster }
func (m *Member) UID() string  { return m.uid }

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
func (m *Member) RoundTrip(r *http.Request) (*http.Response, error) {
	rs, err := m.scopeOf(r)
	if err == nil && httprelay.IsUpgrade(r.Header) {
		err = scope.ErrNoScope // those are relayed
	}
	if err != nil {
		return nil, m.failed(err)
	}
	if err := m.MayAlso(r.Context(), rs); err != nil {
		return m.Refused(r, err)
	}
	decision, err := m.decide(rs)
	if err != nil {
		return m.Refused(r, err)
	}
	m.sentTo.Add(m.Cluster)
	if m.lists != nil {
		if resp := m.lists.answer(r, rs.Inner, m.Cluster, m.uid); resp != nil {
			m.Metrics.ViewClusters.WithLabelValues(metrics.Indexed).Inc()
			filter.WarnOfPolicies(resp.Header, &decision)
			return resp, nil
		}
	}
	r, leave := m.policed(r, rs)
	sent := time.Now()
	resp, err := m.Relay.Proxy.Transport.RoundTrip(m.outgoing(r, rs))
	if err == nil && !httprelay.WasAskedFor(resp) {
		resp.Body.Close()
		err = fmt.Errorf("status %d was not asked for", resp.StatusCode)
	}
	if err != nil {
		m.Metrics.ViewClusters.WithLabelValues(m.outcome(r.Context(), err)).Inc()
		leave()
		return nil, m.failed(err)
	}
	m.Metrics.ViewClusters.WithLabelValues(metrics.Answered).Inc()
	m.Relay.Latencies.Observe(m.Cluster, time.Since(sent))
	deleteForeign(resp.Header)
	filter.WarnOfPolicies(resp.Header, &decision)
	if rs.Long {
		resp.Body = &leavingBody{resp.Body, leave}
	}
	return resp, nil
}

// policed prepares a watch of the cluster, which ends once a policy refuses it. The answers of other requests have
// an end of their own. leave must be called when the answer has been read.
func (m *Member) policed(r *http.Request, rs *scope.Scope) (_ *http.Request, leave func()) {
	if !rs.Long || m.Revalidation == nil {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	leavePolicies := m.Revalidation.JoinPolicies(rs, cancel)
	return r.WithContext(ctx), func() {
		leavePolicies()
		cancel(nil)
	}
}

// leavingBody is the body of an answer, after which something is left.
type leavingBody struct {
	io.ReadCloser
	leave func()
}

func (b *leavingBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}

// scopeOf understands a request of package fleetview for the cluster.
func (m *Member) scopeOf(r *http.Request) (*scope.Scope, error) {
	target, err := route.ParseIn(m.Cluster, r.URL.RequestURI())
	if err == nil && target.ForService() {
		err = status.New(http.StatusNotFound, "a view has no exposed Services")
	}
	asked := *r
	asked.Host, asked.RequestURI = m.Scope.Host, r.URL.RequestURI()
	rs, err := scope.NewClusterScope(&asked, target, m.Scope.Group, err)
	rs.Requester, rs.User, rs.Holder, rs.Asked = m.Scope.Requester, m.Scope.User, m.Scope.Holder, m.Scope.Asked
	// Documents of OpenAPI are large.
	rs.Discovery = rs.Inner != nil && !rs.Inner.IsResourceRequest && !strings.HasPrefix(r.URL.Path, "/openapi/")
	// Redirects lead to the cluster's own path, in the endpoint that was asked.
	switch rs.Prefix = "/" + m.Cluster; {
	case m.Scope.IsKarmadas():
		rs.Prefix = scope.KarmadaClustersPath + m.Cluster + "/proxy"
	case strings.HasPrefix(m.Scope.Prefix, scope.ViewsPath):
		rs.Prefix = scope.ClustersPath + m.Cluster + "/proxy"
	}
	return rs, err
}

// MayAlso asks the hub about a request that does something else than the view's request:
// a right to that is no right to everything that answering it may take. It also asks again if
// the hub took so long to say what the user may reach that it may not be so any more.
func (m *Member) MayAlso(ctx context.Context, rs *scope.Scope) error {
	if rs.Info.Verb == m.Scope.Info.Verb && (m.Scope.Leaves || !rs.Leaves) && !m.AskAgain {
		return nil // members are those for which this was asked
	}
	for _, right := range rs.Rights() {
		decision, reason, err := m.Authorizer.AuthorizeCluster(ctx, rs.User, right, m.Cluster)
		switch {
		case err != nil:
			return errNotAsked
		case decision != authorizer.DecisionAllow:
			a := right.OfCluster(rs.User, m.Cluster)
			return status.New(http.StatusForbidden, strings.TrimSpace(fmt.Sprintf("the request needs the right to %s %s/%s of cluster %q on the hub %s",
				a.GetVerb(), a.GetResource(), a.GetSubresource(), m.Cluster, reason)))
		}
	}
	return nil
}

// Refused is the answer to a request that is not sent, as if the cluster had refused it.
func (m *Member) Refused(r *http.Request, err error) (*http.Response, error) {
	var refused *status.Error
	if !errors.As(err, &refused) || refused.ErrStatus.Code != http.StatusForbidden {
		return nil, m.failed(err)
	}
	return refusal(r, refused.ErrStatus), nil
}

// outgoing is a request as it is sent: what is between a client and us stays here.
func (m *Member) outgoing(r *http.Request, rs *scope.Scope) *http.Request {
	out := r.Clone(context.WithValue(r.Context(), scope.Key{}, rs))
	out.RequestURI, out.RemoteAddr = "", m.origin.RemoteAddr
	deleteHop(out.Header)
	relay.Correlate(m.origin, out.Header)
	m.Via.AddTo(out.Header)
	return out
}

// perHop are headers of a connection, which RFC 9110, section 7.6.1, keeps proxies from
// passing on.
var perHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func deleteHop(header http.Header) {
	for name := range httprelay.ConnectionOptions(header) {
		header.Del(name)
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

func (m *Member) outcome(ctx context.Context, err error) string {
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil && m.origin.Context().Err() == nil {
		return metrics.Slow
	}
	return metrics.Failed
}

// failed is err as users may read it.
func (m *Member) failed(err error) error {
	since := m.Clusters.AwaySince(m.Cluster)
	return &memberError{message: scope.StatusFor(err, m.Cluster, since).Message, err: err, away: agentclient.IsAway(err, since)}
}

// ViewRequest is one request for a view.
type ViewRequest struct {
	*Fleet
	Scope *scope.Scope
	// origin is the request as it came through the filters.
	origin *http.Request
	// lists asks the fleet index; nil if the request is not for it.
	lists *indexedLists
	// sentTo are the clusters that were asked, or that the index answered for.
	sentTo Names
	// policies are the AccessPolicies that were asked, and objections theirs, by cluster.
	policies, objections Names
	// single says that the view is of one cluster and can have no other, and timeout how long
	// a cluster may take to begin its answer.
	single  bool
	timeout time.Duration
}

// decide asks the policies about a request to one cluster.
func (q *ViewRequest) decide(rs *scope.Scope) (accesspolicy.Decision, error) {
	decision, err := q.Decide(rs)
	for _, name := range decision.Asked {
		q.policies.Add(name)
	}
	for _, o := range decision.Objections {
		q.objections.Add(rs.Target.Cluster + " " + filter.ObjectionText(o))
	}
	return decision, err
}

// members are the clusters of the view, as it is now, that are served and that the user
// may reach with this request's verb: the view selects by sets, selector or names, and all clusters without any of them; the
// user has the right to all clusters, to a ManagedClusterSet, or to a name. The others are not mentioned: that a cluster is
// away is known by asking it, which fails at once.
func (q *ViewRequest) members(ctx context.Context) ([]fleet.Member, error) {
	selected, err := q.Scope.View.Clusters()
	if err != nil {
		return nil, status.New(http.StatusServiceUnavailable, err.Error())
	}
	allowed, late, err := q.Authorizer.Reachable(ctx, q.Scope.User, q.Scope.Rights(), selected)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, scope.NotAsked(err, "which clusters of the view you may reach")
	}
	var members []fleet.Member
	for _, cluster := range allowed {
		if q.Clusters.Served(cluster) != nil {
			continue
		}
		members = append(members, &Member{ViewRequest: q, Cluster: cluster, uid: q.Clusters.UID(cluster), AskAgain: late})
	}
	return members, nil
}

// Fleet answers requests for views that may go on. Package fleetview makes one answer of
// many; what it asks, it asks here.
type Fleet struct {
	*filter.Filters
	Relay        *relay.Relay
	Revalidation *filter.Revalidation
	Handler      FleetHandler
	// Index is the fleet index; nil if there is none.
	Index Index
	// Held counts what answers of the index take.
	Held *fleet.Memory
}

// FleetHandler is package fleetview's Handler.
type FleetHandler interface {
	// Serve answers a request whose URL is as a managed kube-apiserver sees it.
	Serve(w http.ResponseWriter, r *http.Request, view fleet.View)
}

// errNotAsked is the error of a request to a cluster of a view of which it could not be found
// out whether the user may make it.
var errNotAsked = status.New(http.StatusServiceUnavailable, "the hub's kube-apiserver could not be asked which clusters of the view you may reach: try again")
