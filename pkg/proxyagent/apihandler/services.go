package apihandler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Services forwards requests to Services of the managed cluster: to those that
// are listed, and to no others. It is a part of the handler.
type Services struct {
	// Exposed is the list of this moment.
	Exposed func() agentapi.ExposedServices
	// Resolver resolves Services; nil means the pod's own resolver.
	Resolver Resolver
	// Roots holds the CAs that Services' certificates are verified with.
	Roots *pki.Reloader

	metrics *metrics
	tcp     dial.TCP
	// connect dials an IP address and port; nil means a net.Dialer.
	connect dialContext
}

// serviceProxy is Services in use.
type serviceProxy struct {
	exposed func() agentapi.ExposedServices
	dialer  *serviceDialer
	roots   *pki.Reloader
	proxy   http.Handler
	metrics *metrics
}

// byTarget sends requests that name a Service to services, and all others to
// the kube-apiserver. A header that is spelled in an odd way names one too: it
// must not make a request for a Service into one for the kube-apiserver.
func byTarget(services, kubeAPIServer http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if agentapi.Has(r.Header, agentapi.ForService) {
			services.ServeHTTP(w, r)
			return
		}
		kubeAPIServer.ServeHTTP(w, r)
	})
}

func (s Services) handler() *serviceProxy {
	p := &serviceProxy{exposed: s.Exposed, roots: s.Roots, metrics: s.metrics, dialer: &serviceDialer{
		resolver: s.Resolver, connect: s.connect, tcp: s.tcp,
	}}
	if s.connect == nil {
		p.dialer.connect = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if s.Exposed == nil {
		p.exposed = func() agentapi.ExposedServices { return nil }
	}
	if s.Resolver == nil {
		p.dialer.resolver = net.DefaultResolver
	}
	transport := &http.Transport{
		DialContext:            p.dialer.dial,
		DialTLSContext:         p.dialTLS,
		DisableCompression:     true,
		MaxIdleConns:           100,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: httprelay.MaxHeaderBytes,
		Protocols:              new(http.Protocols),
	}
	// One protocol for everything, upgrades included, as in upstream.
	transport.Protocols.SetHTTP1(true)
	upgrades := transport.Clone()
	upgrades.DisableKeepAlives = true // see prepare
	proxy := &httputil.ReverseProxy{
		Rewrite:       rewriteForService,
		Transport:     httprelay.NoInformational(serviceTransports{transport, upgrades}),
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			connect.Upgraded(resp)
			return checkStatus(resp)
		},
		ErrorHandler: p.writeError,
	}
	p.proxy = forUpgrades(proxy)
	return p
}

// serviceTransports keep connections, but not for upgrades.
type serviceTransports struct{ requests, upgrades http.RoundTripper }

// RoundTrip is part of http.RoundTripper.
func (t serviceTransports) RoundTrip(r *http.Request) (*http.Response, error) {
	if httprelay.IsUpgrade(r.Header) {
		return t.upgrades.RoundTrip(r)
	}
	r, err := httprelay.RepeatBody(r)
	if err != nil {
		return nil, err
	}
	return t.requests.RoundTrip(r)
}

type serviceKey struct{}

// serviceTarget is a Service that a request may go to, with its port resolved.
type serviceTarget struct {
	scheme, address string
	authorization   string // for the Service; empty for none
}

func (p *serviceProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, err := p.admit(r)
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	if target.scheme == "tcp" {
		p.connect(w, r, target.address)
		return
	}
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serviceKey{}, target)))
}

// admit decides whether a request goes to the Service that it names.
func (p *serviceProxy) admit(r *http.Request) (serviceTarget, error) {
	wanted, err := agentapi.ServiceOf(r.Header)
	if err != nil {
		return serviceTarget{}, &badRequest{err.Error()}
	}
	if (wanted.Protocol == "tcp") != (r.Method == http.MethodConnect) {
		return serviceTarget{}, &badRequest{fmt.Sprintf("method %s does not go with protocol %q: CONNECT and tcp belong together", r.Method, wanted.Protocol)}
	}
	terms := p.exposed().Terms("", "", wanted)
	if !terms.Exposed {
		return serviceTarget{}, &notExposed{wanted}
	}
	login := r.Header.Get(agentapi.ServiceAuthorization)
	if err := checkLogin(login, terms); err != nil {
		return serviceTarget{}, err
	}
	port, err := p.dialer.port(r.Context(), wanted)
	if err != nil {
		return serviceTarget{}, err
	}
	return serviceTarget{scheme: wanted.Protocol, address: net.JoinHostPort(hostOf(wanted), port), authorization: login}, nil
}

// checkLogin reports whether a Service may get a login. Logins that authenticate a
// connection instead of a request are refused for every Service, because connections
// are shared.
func checkLogin(login string, terms agentapi.ServiceTerms) error {
	if login == "" {
		return nil
	}
	if !terms.ForwardAuthorization {
		return &badRequest{"the agent does not forward logins to this Service: set forwardAuthorization in its entry of the value exposedServices of the hub's chart"}
	}
	scheme, _, _ := strings.Cut(login, " ")
	for _, ofConnections := range []string{"NTLM", "Negotiate"} {
		if strings.EqualFold(scheme, ofConnections) {
			return &badRequest{fmt.Sprintf("%s logs connections in, and those are shared: use a login that is in each request, such as Basic or Bearer", ofConnections)}
		}
	}
	return nil
}

func hostOf(s agentapi.Service) string { return s.Service + "." + s.Namespace + ".svc" }

// rewriteForService makes the request that the Service sees, without anything that
// identifies the user on the hub: a Service could pose as the user with it. If the hub
// knows the user, the headers that only the kube-apiserver may believe are deleted as
// well.
func rewriteForService(r *httputil.ProxyRequest) {
	target, ok := r.In.Context().Value(serviceKey{}).(serviceTarget)
	if !ok {
		return // without a host the request fails
	}
	header := r.Out.Header
	if agentapi.Has(header, agentapi.FrontProxy) {
		agentapi.Delete(header, identityHeaders)
	}
	agentapi.Delete(header, agentapi.Forwarded)
	agentapi.Delete(header, []string{agentapi.FrontProxy, agentapi.ForService})
	if target.authorization != "" {
		header.Set("Authorization", target.authorization)
	}
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.scheme, target.address, target.address
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	if forwarded := r.In.Header["X-Forwarded-For"]; len(forwarded) > 0 {
		header["X-Forwarded-For"] = forwarded
	}
}

// dialTLS dials a Service and verifies that it has the certificate for its name.
func (p *serviceProxy) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	raw, err := p.dialer.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := p.roots.ClientConfig(host)
	config.NextProtos = []string{"http/1.1"}
	conn := tls.Client(raw, config)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS with the Service: %w", pki.Explain(err))
	}
	return conn, nil
}

type badRequest struct{ reason string }

func (b *badRequest) Error() string { return b.reason }

// notExposed is the error of a Service that is not listed.
type notExposed struct{ wanted agentapi.Service }

func (n *notExposed) Error() string {
	return fmt.Sprintf("the agent does not expose the %v: list it in the value exposedServices of the hub's chart", n.wanted)
}

// writeError answers a request that did not reach a Service.
func (p *serviceProxy) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client is gone
	}
	var malformed *badRequest
	var netErr net.Error
	logger := klog.FromContext(r.Context())
	reason := deniedReason(err)
	switch {
	case errors.As(err, &malformed):
		p.metrics.rejectService("malformed")
		logger.Info("Refused a malformed request for a Service", "reason", err.Error())
		refuse(w, http.StatusBadRequest, err.Error())
	case reason != "":
		p.metrics.rejectService(reason)
		logger.Info("Denied a request for a Service", "reason", reason, "message", err.Error())
		refuse(w, http.StatusForbidden, err.Error())
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded):
		logger.Error(err, "Forwarding to a Service")
		refuse(w, http.StatusGatewayTimeout, "the Service did not answer the agent in time: "+err.Error())
	default:
		logger.Error(err, "Forwarding to a Service")
		refuse(w, http.StatusBadGateway, "the agent cannot reach the Service; look at the Service and at its pods: "+err.Error())
	}
}
