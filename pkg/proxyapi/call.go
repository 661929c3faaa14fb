package proxyapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// groupPath and clustersPath are where the aggregated API is served.
var (
	groupPath    = "/apis/" + v1alpha1.GroupVersion.Group + "/" + v1alpha1.GroupVersion.Version
	clustersPath = groupPath + "/" + v1alpha1.Resource + "/"
)

// call is what is known of one request. It belongs to the goroutine that serves
// the request.
type call struct {
	// target is where the request goes; zero if the proxy API itself is meant.
	target route.Target
	// prefix is what of the request's path the target does not get to see.
	prefix string
	// host is the Host header.
	host string
	// info is the request as the hub authorizes it.
	info *request.RequestInfo
	// inner is the request as the managed kube-apiserver sees it; nil if the
	// proxy API itself is meant.
	inner *request.RequestInfo
	// leaves says that the request leaves the Kubernetes API, for which it
	// needs the right to streams.
	leaves bool
	// long says that the request has no natural end.
	long bool
	// credential names an unknown credential, see strangers.
	credential string
	// passThrough says that the hub does not know the caller, and leaves him to
	// the managed cluster.
	passThrough bool
	// holder is whom limits count the request for.
	holder string
	// asked is a stream's request as it came, until revalidation has it.
	asked *http.Request
	// sent is when the request was sent to the cluster.
	sent time.Time
	// login is what the Service gets to see as Authorization; empty for nothing.
	login string
	// user is whom the agent is told of; nil until it was decided that it may.
	user user.Info
}

// to is where the request goes.
func (c *call) to() agentclient.Target {
	to := agentclient.Target{Cluster: c.target.Cluster, Service: c.target.Service}
	switch {
	case c.inner != nil && c.inner.Verb == "watch":
		to.Kind = agentclient.Watch
	case c.long:
		to.Kind = agentclient.Stream
	}
	return to
}

// identity is as whom the request goes there.
func (c *call) identity() agentclient.Identity {
	return agentclient.Identity{User: c.user, PassThrough: c.passThrough, ServiceAuthorization: c.login}
}

type callKey struct{}

// callOf is the call that ServeHTTP put in the context.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// requestInfo reads requests as every Kubernetes API server does.
var requestInfo = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// newCall finds out what a request wants. The error is for statusFor.
func (h *handler) newCall(r *http.Request) (*call, error) {
	if r.Method == http.MethodConnect {
		return newConnect(r)
	}
	if cluster, ok := h.clusterOfHost(r.Host); ok {
		target, err := route.ParseIn(cluster, r.RequestURI)
		return forwarded(r, target, err)
	}
	if target, ok, err := route.ParseBelow(clustersPath, v1alpha1.ProxySubresource, r.RequestURI); ok {
		return forwarded(r, target, err)
	}
	if route.Own(r.RequestURI) {
		info, err := requestInfo.NewRequestInfo(r)
		if err != nil {
			return &call{}, refusal(http.StatusBadRequest, err.Error())
		}
		return &call{info: info}, nil
	}
	target, err := route.Parse(r.RequestURI)
	return forwarded(r, target, err)
}

// clusterOfHost is the cluster that a request's host stands for.
func (h *handler) clusterOfHost(host string) (string, bool) {
	if h.domain == "" {
		return "", false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.CutSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), "."+h.domain)
}

// streaming are subresources by which a request leaves the Kubernetes API.
var streaming = []string{"exec", "attach", "portforward", "proxy"}

func forwarded(r *http.Request, target route.Target, err error) (*call, error) {
	c := &call{target: target, host: r.Host}
	if err != nil {
		return c, err
	}
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	c.prefix = strings.TrimSuffix(raw, target.Path)
	if c.inner, err = innerInfo(r, target); err != nil {
		return c, refusal(http.StatusBadRequest, err.Error())
	}
	c.leaves = httprelay.IsUpgrade(r.Header) || target.ForService() || slices.Contains(streaming, c.inner.Subresource) || c.inner.Verb == "proxy"
	c.long = c.leaves || c.inner.Verb == "watch" || c.inner.Subresource == "log"
	c.info = outerInfo(r, target.Cluster, verbFor(r.Method, c.inner))
	return c, nil
}

func innerInfo(r *http.Request, target route.Target) (*request.RequestInfo, error) {
	if target.ForService() {
		return &request.RequestInfo{Path: target.Decoded(), Verb: strings.ToLower(r.Method)}, nil
	}
	return requestInfo.NewRequestInfo(&http.Request{Method: r.Method,
		URL: &url.URL{Path: target.Decoded(), RawQuery: strings.TrimPrefix(target.Query, "?")}})
}

// outerInfo is a request for a cluster's subresource proxy.
func outerInfo(r *http.Request, cluster, verb string) *request.RequestInfo {
	return &request.RequestInfo{
		IsResourceRequest: true, Path: r.URL.Path, Verb: verb, APIPrefix: "apis",
		APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.Resource, Subresource: v1alpha1.ProxySubresource, Name: cluster,
		Parts: []string{v1alpha1.Resource, cluster, v1alpha1.ProxySubresource},
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
