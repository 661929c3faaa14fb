package scope

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Endpoints are the ways in that are not always there.
type Endpoints struct {
	// Domain is the one that <cluster>.<domain> are hosts of; empty for none.
	Domain string
	// Karmada says that there is Karmada's API.
	Karmada bool
}

// NewScope finds out what a request wants. The error is for statusFor.
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
	if target, ok, err := route.ParseViewBelow(ViewsPath, v1alpha1.SearchSubresource, r.RequestURI); ok {
		return newSearchScope(r, target, own, err)
	}
	if e.Karmada {
		if rs, ok, err := newKarmadaScope(r); ok {
			return rs, err
		}
	}
	if route.Own(r.RequestURI) {
		info, err := apirequest.Resolver.NewRequestInfo(r)
		if err != nil {
			return &Scope{}, status.New(http.StatusBadRequest, err.Error())
		}
		return &Scope{Kind: Own, Info: info, Long: info.IsResourceRequest && info.Verb == "watch"}, nil
	}
	target, err := route.Parse(r.RequestURI)
	if target.View != "" {
		return newViewScope(r, target, own, err)
	}
	return NewClusterScope(r, target, own, err)
}

// ClusterOfHost is the cluster that a request's host stands for, as <cluster>.<domain>.
func ClusterOfHost(host, domain string) (string, bool) {
	if domain == "" {
		return "", false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.CutSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), "."+domain)
}

// newConnectScope understands a CONNECT request. The bytes on the connection
// cannot be seen, so the caller needs the right to create and to streams.
func newConnectScope(r *http.Request) (*Scope, error) {
	target, err := route.ParseAuthority(r.Host)
	rs := &Scope{Kind: Cluster, Target: target, Group: v1alpha1.GroupVersion, Host: r.Host, Leaves: true, Long: true, Opaque: !target.ForService()}
	if err != nil {
		return rs, err
	}
	rs.Inner = &request.RequestInfo{Path: "/", Verb: "connect"}
	rs.Info = OuterInfo(r, rs.Group, v1alpha1.Resource, target.Cluster, "create")
	// Credentials for a proxy have a header of their own. The other one is
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

// MaxHeaderBytes bounds a request's URL and headers. Up to readHeaderBytes are read, so
// that the refusal can say so; HTTP/2 clients, the hub's kube-apiserver among them, send
// no more than that and have an error of their own.
const MaxHeaderBytes = 64 << 10

// byProxies begins the headers that the hub's front proxy adds to a request.
var byProxies = append([]string{agentapi.FrontProxy}, agentapi.Forwarded...)

// CheckSize refuses a request whose URL and headers are too long. The front
// proxy's headers about the user are not the client's fault: they may be 500 groups. Nor is
// its encoding of the URL, in which %2C counts as one byte therefore.
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
	return status.New(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request's URL and headers have %d bytes, more than the %d that are allowed: send less, such as a shorter selector", size, MaxHeaderBytes))
}

func LongRunning(r *http.Request, _ *request.RequestInfo) bool { return Of(r.Context()).Long }

// WithRequestInfo tells apiserver's filters what newScope found out.
func WithRequestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), Of(r.Context()).Info)))
	})
}
