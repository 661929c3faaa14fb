package apihandler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	readHeaderTimeout = 30 * time.Second
	// idleTimeout is longer than the proxy API's: the client closes idle connections
	// and never sends a request into one that the server is closing.
	idleTimeout = 10 * time.Minute
	// maxStreams is how many requests may share one HTTP/2 connection from the
	// proxy API, which makes another one for more.
	maxStreams = 1000
)

// NewServer makes the server of the handler; the caller listens with the server's TLS
// configuration. cfg says where the kube-apiserver is and which CA it has; the
// credential in it is used for impersonation and for nothing else. tcp finds a
// kube-apiserver, or a Service, that is gone.
func NewServer(cfg *rest.Config, tcp dial.TCP, source *pki.Reloader, services Services, access Access, m Metrics) (*http.Server, error) {
	handler, err := newHandler(cfg, tcp)
	if err != nil {
		return nil, err
	}
	services.metrics, services.tcp = newMetrics(m.Registry), tcp
	access.metrics = services.metrics
	tlsConfig := source.ServerConfig(tls.RequireAndVerifyClientCert)
	tlsConfig.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{
		Handler:           httprelay.HandleEarlyResponses(byRole(services.metrics, access.filter(forAgent(m, byTarget(services.handler(), handler))), access.forIndex(handler))),
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    httprelay.MaxHeaderBytes,
	}
	if err := httprelay.ConfigureServer(server, maxStreams); err != nil {
		return nil, fmt.Errorf("preparing to serve HTTP/2: %w", err)
	}
	return server, nil
}

// byRole sends requests of the proxy API to one handler and those of the fleet index to another, and
// admits nobody else.
func byRole(m *metrics, proxyAPI, fleetIndex http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httprelay.GrowStack()
		role, err := pki.PeerRole(*r.TLS)
		var next http.Handler
		switch role {
		case identity.RoleProxyAPI:
			next = proxyAPI
		case identity.RoleFleetIndex:
			next = fleetIndex
		}
		if err != nil || next == nil {
			m.rejectRequest()
			klog.FromContext(r.Context()).Info("Refused a request from a client that is neither the proxy API nor the fleet index", "role", role)
			refuse(w, http.StatusForbidden, fmt.Sprintf("the agent takes requests from the proxy API and the fleet index only, and the certificate says %q", role))
			return
		}
		if name := listedIdentity(r.Header); name != "" {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("header Connection lists %q, which would change who the request is from on its way", name))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listedIdentity is a header that says who a request is from and that Connection
// declares to be for this hop only. A proxy drops such headers, so a request
// could lose its impersonation and keep its token.
func listedIdentity(header http.Header) string {
	for name := range httprelay.ConnectionOptions(header) {
		name = http.CanonicalHeaderKey(name)
		if agentapi.BeginsAny(name, identityHeaders) || agentapi.Begins(name, agentapi.ForService) {
			return name
		}
	}
	return ""
}

func newHandler(cfg *rest.Config, tcp dial.TCP) (http.Handler, error) {
	target, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the kube-apiserver %q: %w", cfg.Host, err)
	}
	way, err := newTransports(cfg, tcp, target)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { rewrite(r, target); httprelay.RewriteEarlyResponses(r) },
		Transport:     httprelay.NoInformational(way),
		FlushInterval: -1,
		BufferPool:    httprelay.Buffers{},
		ErrorHandler:  writeError,
		ModifyResponse: func(resp *http.Response) error {
			if err := checkStatus(resp); err != nil {
				return err
			}
			warnOfGroups(resp)
			if isRead(resp.Request) {
				httprelay.Coalesce(resp)
			}
			connect.Upgraded(resp)
			return nil
		},
	}
	return forUpgrades(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxy.ServeHTTP(httprelay.NoFinalFlush(w), r) })), nil
}

// forUpgrades ends both connections of an upgrade as cut off if one is.
func forUpgrades(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httprelay.IsUpgrade(r.Header) {
			w, r = connect.Upgrade(w, r)
		}
		proxy.ServeHTTP(w, r)
	})
}

// checkStatus refuses an answer that changes the protocol without having been asked to:
// the connection could then be used for another user's requests.
func checkStatus(resp *http.Response) error {
	if !httprelay.WasAskedFor(resp) {
		return fmt.Errorf("it answered with status %d, which the request did not ask for", resp.StatusCode)
	}
	return nil
}

// rewrite points a request at the kube-apiserver. Path and query stay byte for
// byte. The addresses in the proxy API's X-Forwarded-For are passed on with its own
// appended: the managed cluster's audit log shows the way.
func rewrite(r *httputil.ProxyRequest, target *url.URL) {
	r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	r.Out.Host = target.Host
	// ReverseProxy drops what it cannot parse of a query; the kube-apiserver
	// should see it and refuse it.
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	agentapi.Delete(r.Out.Header, agentapi.Forwarded)
	if _, ok := impersonationOf(r.In.Context()); ok {
		agentapi.Delete(r.Out.Header, identityHeaders)
	}
	forwarded := r.In.Header["X-Forwarded-For"]
	if host, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		forwarded = append(forwarded[:len(forwarded):len(forwarded)], host)
	}
	for _, address := range forwarded {
		r.Out.Header.Add("X-Forwarded-For", address)
	}
}

// writeError answers a request that did not reach the kube-apiserver.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client is gone
	}
	klog.FromContext(r.Context()).Error(err, "Forwarding to the kube-apiserver")
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		refuse(w, http.StatusGatewayTimeout, "the managed cluster's kube-apiserver did not answer the agent in time; try again, or look at the kube-apiserver: "+err.Error())
		return
	}
	refuse(w, http.StatusBadGateway, "the agent cannot reach the managed cluster's kube-apiserver; look at the kube-apiserver and at the agent's network: "+err.Error())
}

// refuse answers a request that the agent does not relay.
func refuse(w http.ResponseWriter, code int, message string) {
	status.Write(w, status.New(code, message).ErrStatus)
}
