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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/exposedservices"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Headers by which the proxy API names a Service; upstream's names.
const (
	serviceHeaders  = "Cluster-Proxy-"
	headerProto     = serviceHeaders + "Proto"
	headerNamespace = serviceHeaders + "Namespace"
	headerService   = serviceHeaders + "Service"
	headerPort      = serviceHeaders + "Port"
)

// Services forwards requests to Services of the managed cluster: to those that
// are listed, and to no others. It is a part of the handler.
type Services struct {
	// Exposed is the list of this moment.
	Exposed func() exposedservices.List
	// Resolver resolves Services; nil means the pod's own resolver.
	Resolver Resolver
	// Roots holds the CAs that Services' certificates are verified with.
	Roots *pki.Source
}

// serviceProxy is Services in use.
type serviceProxy struct {
	exposed func() exposedservices.List
	dialer  *serviceDialer
	roots   *pki.Source
	proxy   *httputil.ReverseProxy
}

// byTarget sends requests that name a Service to services, and all others to
// the kube-apiserver. A header that is spelled in an odd way names one too: it
// must not make a request for a Service into one for the kube-apiserver.
func byTarget(services, kubeAPIServer http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasHeader(r.Header, serviceHeaders) {
			services.ServeHTTP(w, r)
			return
		}
		kubeAPIServer.ServeHTTP(w, r)
	})
}

// hasPrefix compares the beginning of a header's name. Some servers take an
// underscore for a hyphen, so it is one here.
func hasPrefix(name, prefix string) bool {
	return strings.HasPrefix(http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")), prefix)
}

func (s Services) handler() *serviceProxy {
	p := &serviceProxy{exposed: s.Exposed, roots: s.Roots, dialer: &serviceDialer{
		resolver: s.Resolver, connect: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}}
	if s.Exposed == nil {
		p.exposed = func() exposedservices.List { return nil }
	}
	if s.Resolver == nil {
		p.dialer.resolver = net.DefaultResolver
	}
	transport := &http.Transport{
		DialContext:           p.dialer.dial,
		DialTLSContext:        p.dialTLS,
		DisableCompression:    true,
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		Protocols:             new(http.Protocols),
	}
	// One protocol for everything, upgrades included, as in upstream.
	transport.Protocols.SetHTTP1(true)
	p.proxy = &httputil.ReverseProxy{
		Rewrite:       rewriteForService,
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  writeServiceError,
	}
	return p
}

type serviceKey struct{}

// serviceTarget is a Service that a request may go to, with its port resolved.
type serviceTarget struct{ scheme, address string }

func (p *serviceProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, err := p.admit(r)
	if err != nil {
		writeServiceError(w, r, err)
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
	wanted, err := serviceOf(r.Header)
	if err != nil {
		return serviceTarget{}, err
	}
	if (wanted.Protocol == "tcp") != (r.Method == http.MethodConnect) {
		return serviceTarget{}, &badRequest{fmt.Sprintf("method %s does not go with protocol %q: CONNECT and tcp belong together", r.Method, wanted.Protocol)}
	}
	if !p.exposed().Allows(wanted) {
		return serviceTarget{}, &notExposed{wanted}
	}
	port, err := p.dialer.port(r.Context(), wanted)
	if err != nil {
		return serviceTarget{}, err
	}
	return serviceTarget{scheme: wanted.Protocol, address: net.JoinHostPort(hostOf(wanted), port)}, nil
}

// serviceOf is the Service that headers name. Each header must be there once,
// in its plain spelling: two readers must not understand it in two ways.
func serviceOf(header http.Header) (exposedservices.Service, error) {
	for name := range header {
		if hasPrefix(name, serviceHeaders) && len(header[name]) != 1 {
			return exposedservices.Service{}, &badRequest{fmt.Sprintf("header %s is there %d times", name, len(header[name]))}
		}
		switch {
		case !hasPrefix(name, serviceHeaders):
		case name != headerProto && name != headerNamespace && name != headerService && name != headerPort:
			return exposedservices.Service{}, &badRequest{fmt.Sprintf("header %q is not one of those that name a Service", name)}
		}
	}
	s := exposedservices.Service{
		Namespace: header.Get(headerNamespace), Service: header.Get(headerService),
		Port: header.Get(headerPort), Protocol: header.Get(headerProto),
	}
	if err := s.Check(); err != nil {
		return s, &badRequest{err.Error()}
	}
	if s.Protocol == "" {
		return s, &badRequest{"the request for a Service names no protocol"}
	}
	return s, nil
}

func hostOf(s exposedservices.Service) string { return s.Service + "." + s.Namespace + ".svc" }

// rewriteForService makes the request that the Service sees. Nothing that says
// who the user is on the hub goes there: a Service could claim to be him. With
// a user whom the hub knows, not even the headers that only the kube-apiserver
// is to believe.
func rewriteForService(r *httputil.ProxyRequest) {
	target, ok := r.In.Context().Value(serviceKey{}).(serviceTarget)
	if !ok {
		return // without a host the request fails
	}
	asserted := false
	for name := range r.Out.Header {
		asserted = asserted || hasPrefix(name, "X-Remote-")
	}
	for name := range r.Out.Header {
		switch {
		case hasPrefix(name, "X-Remote-"), hasPrefix(name, serviceHeaders),
			hasPrefix(name, "Forwarded"), hasPrefix(name, "X-Real-Ip"), hasPrefix(name, "X-Forwarded-"),
			asserted && (hasPrefix(name, "Authorization") || hasPrefix(name, "Impersonate-")):
			delete(r.Out.Header, name)
		}
	}
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.scheme, target.address, target.address
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	if forwarded := r.In.Header["X-Forwarded-For"]; len(forwarded) > 0 {
		r.Out.Header["X-Forwarded-For"] = forwarded
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
type notExposed struct{ wanted exposedservices.Service }

func (n *notExposed) Error() string {
	return fmt.Sprintf("the agent does not expose the %v: list it in the value exposedServices of the hub's chart", n.wanted)
}

// writeServiceError answers a request that did not reach a Service.
func writeServiceError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client is gone; nobody reads an answer
	}
	var malformed *badRequest
	var netErr net.Error
	logger := klog.FromContext(r.Context())
	reason := deniedReason(err)
	switch {
	case errors.As(err, &malformed):
		servicesDenied.WithLabelValues("malformed").Inc()
		logger.Info("Refused a malformed request for a Service", "reason", err.Error())
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case reason != "":
		servicesDenied.WithLabelValues(reason).Inc()
		logger.Info("Denied a request for a Service", "reason", reason, "err", err.Error())
		writeStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded):
		logger.Info("Forwarding to a Service", "err", err.Error())
		writeStatus(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the Service did not answer the agent in time: "+err.Error())
	default:
		logger.Info("Forwarding to a Service", "err", err.Error())
		writeStatus(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "the agent cannot reach the Service; look at the Service and at its pods: "+err.Error())
	}
}
