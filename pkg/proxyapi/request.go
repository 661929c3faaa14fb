package proxyapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// groupPath, clustersPath and viewsPath are where the aggregated API is served.
var (
	groupPath    = "/apis/" + v1alpha1.GroupVersion.Group + "/" + v1alpha1.GroupVersion.Version
	clustersPath = groupPath + "/" + v1alpha1.Resource + "/"
	viewsPath    = groupPath + "/" + viewsResource + "/"
)

// viewsResource has the subresource proxy in the aggregated API. FleetViews themselves
// are in another group.
const viewsResource = "fleetviews"

// scopeKind is what a request is for.
type scopeKind int

const (
	// noScope is refused by every filter.
	noScope scopeKind = iota
	// ownScope is the proxy API itself.
	ownScope
	// clusterScope is one cluster.
	clusterScope
	// viewScope is a fleet view.
	viewScope
)

// errNoScope is the error of a request that is for nothing: a bug.
var errNoScope = refusal(http.StatusInternalServerError, "internal error: the request is for no cluster, no view, and not for the proxy API; report it with the request's Audit-Id from the proxy API's audit log")

// requestScope is what is known of one request. It belongs to the goroutine that serves
// the request.
type requestScope struct {
	kind scopeKind
	// target is where the request goes; zero if the proxy API itself is meant.
	target route.Target
	// prefix is what of the request's path the target does not get to see.
	prefix string
	// host is the Host header.
	host string
	// info is the request as the hub authorizes it.
	info *request.RequestInfo
	// group has the rights to clusters that the request needs.
	group schema.GroupVersion
	// inner is the request as the managed kube-apiservers see it; nil if the
	// proxy API itself is meant.
	inner *request.RequestInfo
	// leaves says that the request leaves the Kubernetes API, for which it
	// needs the right to streams.
	leaves bool
	// agentMetrics says that the cluster's agent answers the request, with its metrics.
	agentMetrics bool
	// long says that the request has no natural end.
	long bool
	// credential names an unverified credential, see hubaccess.Authenticator.
	credential string
	// again says that it is asked again about an open stream.
	again bool
	// passThrough says that the hub does not know the caller, who may be a user of the
	// managed cluster.
	passThrough bool
	// failure is why the caller is not authenticated, or the request not understood.
	failure error
	// holder is whom limits count the request for.
	holder string
	// asked is a stream's request as it came, until revalidation has it; that of a view
	// stays, for what is relayed to one cluster.
	asked *http.Request
	// view is the one that the request is for, once it is admitted.
	view definition
	// sent is when the request was sent to the cluster, and cancel ends it there.
	sent   time.Time
	cancel context.CancelFunc
	// beginWithin is how long the cluster may take to begin its answer; zero means that only
	// the cluster says so.
	beginWithin time.Duration
	// upgraded is the header of the answer that changed the protocol.
	upgraded http.Header
	// discovery is a question of a view to all of its clusters about what they serve.
	discovery bool
	// login is what the Service gets to see as Authorization; empty for nothing.
	login string
	// user is asserted to the agent; nil until the request is authorized.
	user user.Info
}

// to is where the request goes.
func (scope *requestScope) to() agentclient.Target {
	to := agentclient.Target{Cluster: scope.target.Cluster, Service: scope.target.Service, AgentMetrics: scope.agentMetrics}
	switch {
	case scope.inner != nil && scope.inner.Verb == "watch":
		to.Kind = agentclient.Watch
	case scope.long:
		to.Kind = agentclient.Stream
	case scope.discovery:
		to.Kind = agentclient.Discovery
	}
	return to
}

// rights are what a user needs to have of each cluster that the request goes to.
func (scope *requestScope) rights() []hubaccess.Right {
	group := scope.group.Group
	if scope.agentMetrics {
		return []hubaccess.Right{hubaccess.AgentMetrics.In(group)}
	}
	rights := []hubaccess.Right{hubaccess.Right{Verb: scope.info.Verb}.In(group)}
	if scope.leaves {
		rights = append(rights, hubaccess.Streams.In(group))
	}
	return rights
}

// identity is as whom the request goes there.
func (scope *requestScope) identity() agentclient.Identity {
	return agentclient.Identity{User: scope.user, PassThrough: scope.passThrough, ServiceAuthorization: scope.login}
}

type scopeKey struct{}

// scopeOf is the scope that ServeHTTP put in the context.
func scopeOf(ctx context.Context) *requestScope {
	if scope, ok := ctx.Value(scopeKey{}).(*requestScope); ok {
		return scope
	}
	return &requestScope{}
}

// requestInfo reads requests as every Kubernetes API server does.
var requestInfo = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// endpoints are the ways in that are not always there.
type endpoints struct {
	// domain is the one that <cluster>.<domain> are hosts of; empty for none.
	domain string
	// karmada says that there is Karmada's API.
	karmada bool
}

// newScope finds out what a request wants. The error is for statusFor.
func (e endpoints) newScope(r *http.Request) (*requestScope, error) {
	own := v1alpha1.GroupVersion
	if r.Method == http.MethodConnect {
		return newConnectScope(r)
	}
	if cluster, ok := clusterOfHost(r.Host, e.domain); ok {
		target, err := route.ParseIn(cluster, r.RequestURI)
		return newClusterScope(r, target, own, err)
	}
	if target, ok, err := route.ParseBelow(clustersPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		return newClusterScope(r, target, own, err)
	}
	if target, ok, err := route.ParseBelow(clustersPath, v1alpha1.MetricsSubresource, r.RequestURI); ok {
		return newAgentMetricsScope(r, target, own, err)
	}
	if target, ok, err := route.ParseViewBelow(viewsPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		return newViewScope(r, target, own, err)
	}
	if e.karmada {
		if scope, ok, err := newKarmadaScope(r); ok {
			return scope, err
		}
	}
	if route.Own(r.RequestURI) {
		info, err := requestInfo.NewRequestInfo(r)
		if err != nil {
			return &requestScope{}, refusal(http.StatusBadRequest, err.Error())
		}
		return &requestScope{kind: ownScope, info: info, long: info.IsResourceRequest && info.Verb == "watch"}, nil
	}
	target, err := route.Parse(r.RequestURI)
	if target.View != "" {
		return newViewScope(r, target, own, err)
	}
	return newClusterScope(r, target, own, err)
}

// clusterOfHost is the cluster that a request's host stands for, as <cluster>.<domain>.
func clusterOfHost(host, domain string) (string, bool) {
	if domain == "" {
		return "", false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.CutSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), "."+domain)
}

// streaming are subresources by which a request leaves the Kubernetes API.
var streaming = []string{"exec", "attach", "portforward", "proxy"}

// newClusterScope understands a request for a cluster, the rights to which are of a group.
func newClusterScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*requestScope, error) {
	scope := &requestScope{kind: clusterScope, target: target, group: group, host: r.Host}
	if err == nil {
		err = scope.look(r)
	}
	if err == nil {
		scope.info = outerInfo(r, group, v1alpha1.Resource, target.Cluster, verbFor(r.Method, scope.inner))
	}
	return scope, err
}

// newAgentMetricsScope understands a request for the metrics of a cluster's agent.
func newAgentMetricsScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*requestScope, error) {
	const path = "/metrics"
	scope := &requestScope{kind: clusterScope, target: route.Target{Cluster: target.Cluster, Path: path}, group: group, host: r.Host, agentMetrics: true}
	switch {
	case err != nil:
	case target.Path != "/" || target.ForService():
		err = refusal(http.StatusNotFound, fmt.Sprintf("the metrics of a cluster's agent are at %s<cluster>/%s, and nothing is below", clustersPath, v1alpha1.MetricsSubresource))
	case r.Method != http.MethodGet || httprelay.IsUpgrade(r.Header):
		err = refusal(http.StatusMethodNotAllowed, "the metrics of a cluster's agent can only be read: use GET without an upgrade")
	default:
		scope.inner = &request.RequestInfo{Path: path, Verb: "get"}
		scope.info = outerInfo(r, group, v1alpha1.Resource, target.Cluster, "get")
		scope.info.Subresource = v1alpha1.MetricsSubresource
		scope.info.Parts = []string{v1alpha1.Resource, target.Cluster, v1alpha1.MetricsSubresource}
	}
	return scope, err
}

// newViewScope understands a request for a view of clusters, the rights to which are of a
// group.
func newViewScope(r *http.Request, target route.Target, group schema.GroupVersion, err error) (*requestScope, error) {
	scope := &requestScope{kind: viewScope, target: target, group: group, host: r.Host}
	if err == nil {
		err = scope.look(r)
	}
	if err == nil {
		scope.info = outerInfo(r, group, viewsResource, target.View, verbFor(r.Method, scope.inner))
	}
	return scope, err
}

// look finds out what a request is that is for a cluster or a view.
func (scope *requestScope) look(r *http.Request) error {
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	scope.prefix = strings.TrimSuffix(raw, scope.target.Path)
	inner, err := innerInfo(r, scope.target)
	if err != nil {
		return refusal(http.StatusBadRequest, err.Error())
	}
	scope.inner = inner
	scope.leaves = httprelay.IsUpgrade(r.Header) || scope.target.ForService() || slices.Contains(streaming, inner.Subresource) || inner.Verb == "proxy"
	scope.long = scope.leaves || inner.Verb == "watch" || inner.Subresource == "log"
	return nil
}

func innerInfo(r *http.Request, target route.Target) (*request.RequestInfo, error) {
	if target.ForService() {
		return &request.RequestInfo{Path: target.Decoded(), Verb: strings.ToLower(r.Method)}, nil
	}
	return requestInfo.NewRequestInfo(&http.Request{Method: r.Method,
		URL: &url.URL{Path: target.Decoded(), RawQuery: strings.TrimPrefix(target.Query, "?")}})
}

// outerInfo is a request for the subresource proxy of a cluster or a view.
func outerInfo(r *http.Request, group schema.GroupVersion, resource, name, verb string) *request.RequestInfo {
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
func newConnectScope(r *http.Request) (*requestScope, error) {
	target, err := route.ParseAuthority(r.Host)
	scope := &requestScope{kind: clusterScope, target: target, group: v1alpha1.GroupVersion, host: r.Host, leaves: true, long: true}
	if err != nil {
		return scope, err
	}
	scope.inner = &request.RequestInfo{Path: "/", Verb: "connect"}
	scope.info = outerInfo(r, scope.group, v1alpha1.Resource, target.Cluster, "create")
	// What authenticates at a proxy has a header of its own. The other one is
	// between the ends, and is not sent here.
	r.Header.Del("Authorization")
	if token := proxyToken(r.Header.Get("Proxy-Authorization")); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Del("Proxy-Authorization")
	return scope, nil
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
const maxHeaderBytes = 64 << 10

// byProxies begins the headers that the hub's front proxy adds to a request.
var byProxies = append([]string{agentapi.FrontProxy}, agentapi.Forwarded...)

// checkSize refuses a request whose URL and headers are too long. What the front
// proxy says of the user is not the client's fault: it may be 500 groups. Nor is
// how it encodes the URL, in which %2C counts as one byte therefore.
func checkSize(r *http.Request) error {
	size := len(r.RequestURI) - 2*strings.Count(r.RequestURI, "%")
	for name, values := range r.Header {
		if agentapi.BeginsAny(name, byProxies) {
			continue
		}
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	if size <= maxHeaderBytes {
		return nil
	}
	return refusal(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request's URL and headers have %d bytes, more than the %d that are allowed: send less, such as a shorter selector", size, maxHeaderBytes))
}

func longRunning(r *http.Request, _ *request.RequestInfo) bool { return scopeOf(r.Context()).long }

// withRequestInfo tells apiserver's filters what newScope found out.
func withRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), scopeOf(r.Context()).info)))
	})
}

// userOf is who sends a request, after impersonation.
func userOf(ctx context.Context) user.Info {
	u, _ := request.UserFrom(ctx)
	return u
}
