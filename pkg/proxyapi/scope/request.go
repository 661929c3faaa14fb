package scope

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// groupPath, clustersPath and viewsPath are where the aggregated API is served.
var (
	GroupPath    = "/apis/" + v1alpha1.GroupVersion.Group + "/" + v1alpha1.GroupVersion.Version
	ClustersPath = GroupPath + "/" + v1alpha1.Resource + "/"
	ViewsPath    = GroupPath + "/" + ViewsResource + "/"
)

// viewsResource has the subresource proxy in the aggregated API. FleetViews themselves
// are in another group.
const ViewsResource = "fleetviews"

// scopeKind is what a request is for.
type Kind int

const (
	// noScope is refused by every filter.
	None Kind = iota
	// ownScope is the proxy API itself.
	Own
	// clusterScope is one cluster.
	Cluster
	// viewScope is a fleet view.
	View
)

// errNoScope is the error of a request that is for nothing: a bug.
var ErrNoScope = Refusal(http.StatusInternalServerError, "internal error: the request is for no cluster, no view, and not for the proxy API; report it with the request's Audit-Id from the proxy API's audit log")

// requestScope is what is known of one request. It belongs to the goroutine that serves
// the request.
type Scope struct {
	Kind Kind
	// target is where the request goes; zero if the proxy API itself is meant.
	Target route.Target
	// prefix is what of the request's path the target does not get to see.
	Prefix string
	// host is the Host header.
	Host string
	// info is the request as the hub authorizes it.
	Info *request.RequestInfo
	// group has the rights to clusters that the request needs.
	Group schema.GroupVersion
	// inner is the request as the managed kube-apiservers see it; nil if the
	// proxy API itself is meant.
	Inner *request.RequestInfo
	// leaves says that the request leaves the Kubernetes API, for which it
	// needs the right to streams.
	Leaves bool
	// agentMetrics says that the cluster's agent answers the request, with its metrics.
	AgentMetrics bool
	// long says that the request has no natural end.
	Long bool
	// credential names an unverified credential, see hubaccess.Authenticator.
	Credential string
	// again says that it is asked again about an open stream.
	Again bool
	// passThrough says that the hub does not know the caller, who may be a user of the
	// managed cluster.
	PassThrough bool
	// failure is why the caller is not authenticated, or the request not understood.
	Failure error
	// holder is whom limits count the request for.
	Holder string
	// asked is a stream's request as it came, until revalidation has it; that of a view
	// stays, for what is relayed to one cluster.
	Asked *http.Request
	// view is the one that the request is for, once it is admitted.
	View Definition
	// sent is when the request was sent to the cluster, and cancel ends it there.
	Sent   time.Time
	Cancel context.CancelFunc
	// beginWithin is how long the cluster may take to begin its answer; zero means that only
	// the cluster says so.
	BeginWithin time.Duration
	// upgraded is the header of the answer that changed the protocol.
	Upgraded http.Header
	// discovery is a question of a view to all of its clusters about what they serve.
	Discovery bool
	// login is what the Service gets to see as Authorization; empty for nothing.
	Login string
	// user is asserted to the agent; nil until the request is authorized.
	User user.Info
}

// to is where the request goes.
func (rs *Scope) To() agentclient.Target {
	to := agentclient.Target{Cluster: rs.Target.Cluster, Service: rs.Target.Service, AgentMetrics: rs.AgentMetrics}
	switch {
	case rs.Inner != nil && rs.Inner.Verb == "watch":
		to.Kind = agentclient.Watch
	case rs.Long:
		to.Kind = agentclient.Stream
	case rs.Discovery:
		to.Kind = agentclient.Discovery
	}
	return to
}

// rights are what a user needs to have of each cluster that the request goes to.
func (rs *Scope) Rights() []hubaccess.Right {
	group := rs.Group.Group
	if rs.AgentMetrics {
		return []hubaccess.Right{hubaccess.AgentMetrics.In(group)}
	}
	rights := []hubaccess.Right{hubaccess.Right{Verb: rs.Info.Verb}.In(group)}
	if rs.Leaves {
		rights = append(rights, hubaccess.Streams.In(group))
	}
	return rights
}

// identity is as whom the request goes there.
func (rs *Scope) Identity() agentclient.Identity {
	return agentclient.Identity{User: rs.User, PassThrough: rs.PassThrough, ServiceAuthorization: rs.Login}
}

type ScopeKey struct{}

// scopeOf is the scope that ServeHTTP put in the context.
func Of(ctx context.Context) *Scope {
	if rs, ok := ctx.Value(ScopeKey{}).(*Scope); ok {
		return rs
	}
	return &Scope{}
}

// endpoints are the ways in that are not always there.
type Endpoints struct {
	// domain is the one that <cluster>.<domain> are hosts of; empty for none.
	Domain string
	// karmada says that there is Karmada's API.
	Karmada bool
}

// newScope finds out what a request wants. The error is for statusFor.
func (e Endpoints) NewScope(r *http.Request) (*Scope, error) {
	own := v1alpha1.GroupVersion
	if r.Method == http.MethodConnect {
		return newConnectScope(r)
	}
	if cluster, ok := ClusterOfHost(r.Host, e.Domain); ok {
		target, err := route.ParseIn(cluster, r.RequestURI)
		return NewClusterScope(r, target, own, err)
	}
	if target, ok, err := route.ParseBelow(ClustersPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		return NewClusterScope(r, target, own, err)
	}
	if target, ok, err := route.ParseBelow(ClustersPath, v1alpha1.MetricsSubresource, r.RequestURI); ok {
		return newAgentMetricsScope(r, target, own, err)
	}
	if target, ok, err := route.ParseViewBelow(ViewsPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		return newViewScope(r, target, own, err)
	}
	if e.Karmada {
		if rs, ok, err := newKarmadaScope(r); ok {
			return rs, err
		}
	}
	if route.Own(r.RequestURI) {
		info, err := apirequest.Resolver.NewRequestInfo(r)
		if err != nil {
			return &Scope{}, Refusal(http.StatusBadRequest, err.Error())
		}
		return &Scope{Kind: Own, Info: info, Long: info.IsResourceRequest && info.Verb == "watch"}, nil
	}
	target, err := route.Parse(r.RequestURI)
	if target.View != "" {
		return newViewScope(r, target, own, err)
	}
	return NewClusterScope(r, target, own, err)
}

// clusterOfHost is the cluster that a request's host stands for, as <cluster>.<domain>.
func ClusterOfHost(host, domain string) (string, bool) {
	if domain == "" {
		return "", false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.CutSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), "."+domain)
}

// newClusterScope understands a request for a cluster, the rights to which are of a group.
func NewClusterScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	rs := &Scope{Kind: Cluster, Target: target, Group: group, Host: r.Host}
	if err == nil {
		err = rs.look(r)
	}
	if err == nil {
		rs.Info = OuterInfo(r, group, v1alpha1.Resource, target.Cluster, verbFor(r.Method, rs.Inner))
	}
	return rs, err
}

// newAgentMetricsScope understands a request for the metrics of a cluster's agent.
func newAgentMetricsScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	const path = "/metrics"
	rs := &Scope{Kind: Cluster, Target: route.Target{Cluster: target.Cluster, Path: path}, Group: group, Host: r.Host, AgentMetrics: true}
	switch {
	case err != nil:
	case target.Path != "/" || target.ForService():
		err = Refusal(http.StatusNotFound, fmt.Sprintf("the metrics of a cluster's agent are at %s<cluster>/%s, and nothing is below", ClustersPath, v1alpha1.MetricsSubresource))
	case r.Method != http.MethodGet || httprelay.IsUpgrade(r.Header):
		err = Refusal(http.StatusMethodNotAllowed, "the metrics of a cluster's agent can only be read: use GET without an upgrade")
	default:
		rs.Inner = &request.RequestInfo{Path: path, Verb: "get"}
		rs.Info = OuterInfo(r, group, v1alpha1.Resource, target.Cluster, "get")
		rs.Info.Subresource = v1alpha1.MetricsSubresource
		rs.Info.Parts = []string{v1alpha1.Resource, target.Cluster, v1alpha1.MetricsSubresource}
	}
	return rs, err
}

// newViewScope understands a request for a view of clusters, the rights to which are of a
// group.
func newViewScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*Scope, error) {
	rs := &Scope{Kind: View, Target: target, Group: group, Host: r.Host}
	if err == nil {
		err = rs.look(r)
	}
	if err == nil {
		rs.Info = OuterInfo(r, group, ViewsResource, target.View, verbFor(r.Method, rs.Inner))
	}
	return rs, err
}

// look finds out what a request is that is for a cluster or a view.
func (rs *Scope) look(r *http.Request) error {
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	rs.Prefix = strings.TrimSuffix(raw, rs.Target.Path)
	inner, err := innerInfo(r, rs.Target)
	if err != nil {
		return Refusal(http.StatusBadRequest, err.Error())
	}
	rs.Inner = inner
	rs.Leaves = rs.Target.ForService() || apirequest.LeavesAPI(r, inner)
	rs.Long = rs.Leaves || inner.Verb == "watch" || inner.Subresource == "log"
	return nil
}

func innerInfo(r *http.Request, target route.Target) (*request.RequestInfo, error) {
	if target.ForService() {
		return &request.RequestInfo{Path: target.Decoded(), Verb: strings.ToLower(r.Method)}, nil
	}
	return apirequest.Resolver.NewRequestInfo(&http.Request{Method: r.Method,
		URL: &url.URL{Path: target.Decoded(), RawQuery: strings.TrimPrefix(target.Query, "?")}})
}

// outerInfo is a request for the subresource proxy of a cluster or a view.
func OuterInfo(r *http.Request, group schema.GroupVersion, resource, name, verb string) *request.RequestInfo {
	return &request.RequestInfo{
		IsResourceRequest: true, Path: r.URL.Path, Verb: verb, APIPrefix: "apis",
		APIGroup: group.Group, APIVersion: group.Version,
		Resource: resource, Subresource: v1alpha1.ProxySubresource, Name: name,
		Parts: []string{resource, name, v1alpha1.ProxySubresource},
	}
}

// verbFor is the verb of the inner request. Requests that are not for resources
// get the verb that their method has for resources, so that one rule serves.
func verbFor(method string, inner *request.RequestInfo) string {
	if inner.IsResourceRequest && inner.Verb != "" {
		return inner.Verb
	}
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(method)
}

// newConnectScope understands a CONNECT request. What goes over the connection
// cannot be seen, so the caller needs the right to create and to streams.
func newConnectScope(r *http.Request) (*Scope, error) {
	target, err := route.ParseAuthority(r.Host)
	rs := &Scope{Kind: Cluster, Target: target, Group: v1alpha1.GroupVersion, Host: r.Host, Leaves: true, Long: true}
	if err != nil {
		return rs, err
	}
	rs.Inner = &request.RequestInfo{Path: "/", Verb: "connect"}
	rs.Info = OuterInfo(r, rs.Group, v1alpha1.Resource, target.Cluster, "create")
	// What authenticates at a proxy has a header of its own. The other one is
	// between the ends, and is not sent here.
	r.Header.Del("Authorization")
	if token := proxyToken(r.Header.Get("Proxy-Authorization")); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Del("Proxy-Authorization")
	return rs, nil
}

// proxyToken is the hub's token in a Proxy-Authorization header: the password of
// Basic, with any user name, or a bearer token.
func proxyToken(header string) string {
	scheme, value, _ := strings.Cut(header, " ")
	switch strings.ToLower(scheme) {
	case "bearer":
		return strings.TrimSpace(value)
	case "basic":
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		if err != nil {
			return ""
		}
		_, password, _ := strings.Cut(string(decoded), ":")
		return password
	}
	return ""
}

// maxHeaderBytes bounds a request's URL and headers. Up to readHeaderBytes are read, so
// that the refusal can say so; HTTP/2 clients, the hub's kube-apiserver among them, send
// no more than that and have an error of their own.
const MaxHeaderBytes = 64 << 10

// byProxies begins the headers that the hub's front proxy adds to a request.
var byProxies = append([]string{agentapi.FrontProxy}, agentapi.Forwarded...)

// checkSize refuses a request whose URL and headers are too long. What the front
// proxy says of the user is not the client's fault: it may be 500 groups. Nor is
// how it encodes the URL, in which %2C counts as one byte therefore.
func CheckSize(r *http.Request) error {
	size := len(r.RequestURI) - 2*strings.Count(r.RequestURI, "%")
	for name, values := range r.Header {
		if agentapi.BeginsAny(name, byProxies) {
			continue
		}
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	if size <= MaxHeaderBytes {
		return nil
	}
	return Refusal(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request's URL and headers have %d bytes, more than the %d that are allowed: send less, such as a shorter selector", size, MaxHeaderBytes))
}

func LongRunning(r *http.Request, _ *request.RequestInfo) bool { return Of(r.Context()).Long }

// withRequestInfo tells apiserver's filters what newScope found out.
func WithRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), Of(r.Context()).Info)))
	})
}

// userOf is who sends a request, after impersonation.
func UserOf(ctx context.Context) user.Info {
	u, _ := request.UserFrom(ctx)
	return u
}

// usersOnly reports whether nobody but users whom the hub knows may send such a request.
func (rs *Scope) UsersOnly() bool { return rs.Kind == View || rs.AgentMetrics }

// anonymous reports whether a request has no credential.
func (rs *Scope) Anonymous() bool { return rs.PassThrough && rs.Credential == "" }
