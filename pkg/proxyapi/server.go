package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	readHeaderTimeout = 32 * time.Second // kube-apiserver's
	keepAliveTimeout  = 3 * time.Minute
	// handshakeTimeout is for a TLS handshake.
	handshakeTimeout = 10 * time.Second
	// maxHeaderBytes bounds a request's URL and headers. Up to readHeaderBytes are
	// read, so that the refusal can say so; HTTP/2 clients, the hub's kube-apiserver
	// among them, send no more than that and have an error of their own.
	maxHeaderBytes  = 64 << 10
	readHeaderBytes = httprelay.MaxHeaderBytes
	// maxStreams is how many requests share one HTTP/2 connection of a client, the
	// hub's kube-apiserver among them. More have another one.
	maxStreams = 250
	// cutOff is how long requests get to end after they were canceled.
	cutOff = 5 * time.Second
)

// Server is the proxy API.
type Server struct {
	options Options
	// serving, towards clients; proxy, towards the proxy server; inner,
	// towards agents.
	serving, proxy, inner *pki.Source
	dialer                *tunnel.Dialer
	metrics               *metrics
	health                *health.Server
	// dial makes a connection through the tunnel.
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	agents    *agentclient.Client // set by newParts
	prober    *prober
	latencies *latencies
	memory    *memlimit.Gate
	via       via // set by Run
}

// New checks the options and does no I/O.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	s := &Server{
		options: *o,
		serving: pki.NewSource(pki.Files{Cert: o.ServerCert, Key: o.ServerKey, TLSProfile: o.TLSProfile}),
		proxy:   pki.NewSource(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.ProxyCACert, TLSProfile: o.TLSProfile}),
		inner:   pki.NewSource(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.AgentCACert, TLSProfile: o.TLSProfile}),
		metrics: newMetrics(registry), memory: memlimit.New(registry),
		health: health.New(health.Options{Address: address(o.HealthBindAddress, o.HealthPort),
			// k8s.io/apiserver's own are of the process too.
			Gatherer: prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}}),
		latencies: newLatencies(),
	}
	proxyTLS := func() *tls.Config {
		host, _, _ := net.SplitHostPort(o.ProxyServer) // Validate looked at it
		return s.proxy.ClientConfig(host)
	}
	s.dialer = &tunnel.Dialer{ProxyServer: o.ProxyServer, TLS: proxyTLS}
	registry.MustRegister(protocolGauge(s.dialer))
	s.dial = s.dialer.DialContext
	s.prober = &prober{address: o.ProxyServer, tlsConfig: proxyTLS, reachable: s.metrics.reachable, probed: make(chan struct{})}
	return s, nil
}

// Run serves until ctx is done, and then until the last request ended or the
// drain timeout passed.
func (s *Server) Run(ctx context.Context) error {
	for _, source := range []*pki.Source{s.serving, s.proxy, s.inner} {
		if err := source.Load(); err != nil {
			return err
		}
	}
	hub, err := s.options.hubConfig()
	if err != nil {
		return err
	}
	if s.via, err = viaHub(hub); err != nil {
		return err
	}
	watched, err := hubaccess.NewClusters(hub)
	if err != nil {
		return err
	}
	watched.OnGone(s.forget)
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return fmt.Errorf("making a client for the hub: %w", err)
	}
	parts, err := s.newParts(client, watched, watched.Run)
	if err != nil {
		return err
	}
	listen := address(s.options.ServerBindAddress, s.options.ServerPort)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening on %q: %w", listen, err)
	}
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr().String(), "proxyServer", s.options.ProxyServer)
	return s.run(ctx, listener, parts)
}

// parts are what a Server asks the hub with.
type parts struct {
	clusters      clusters
	authenticator *hubaccess.Authenticator
	authorizer    *hubaccess.Authorizer
	services      services
	config        *server.Config
	// background runs as long as requests do.
	background []func(context.Context) error
}

// newParts does no I/O but to read the files that options name.
func (s *Server) newParts(hub kubernetes.Interface, c clusters, background ...func(context.Context) error) (*parts, error) {
	s.agents = agentclient.New(agentclient.Options{Dial: s.dial, TLS: s.inner.ClientConfig, Admission: c, Metrics: s.metrics.agents()})
	p := &parts{clusters: c, config: newConfig()}
	var err error
	outage := hubaccess.NewOutage(hub, s.options.HubOutageGrace, s.metrics.outage, s.metrics.pastAnswers)
	p.background = append(background, outage.Run)
	if p.authenticator, err = hubaccess.NewAuthenticator(hub, s.options.Audiences, outage); err != nil {
		return nil, err
	}
	if p.authorizer, err = hubaccess.NewAuthorizer(hub, outage); err != nil {
		return nil, err
	}
	exposed, err := newAllowlist(hub, s.options.Namespace, s.options.ExposedServices)
	if err != nil {
		return nil, err
	}
	p.services = exposed
	if err := s.options.Audit.ApplyTo(p.config); err != nil {
		return nil, fmt.Errorf("preparing the audit log: %w", err)
	}
	if err := s.options.Tracing.ApplyTo(nil, p.config); err != nil {
		return nil, fmt.Errorf("preparing traces: %w", err)
	}
	p.background = append(p.background, p.authenticator.Run, exposed.run, p.traces)
	if p.config.AuditBackend != nil {
		p.background = append(p.background, p.audit)
	}
	return p, nil
}

// audit lets the audit backends write until ctx is done, and what they have
// after that.
func (p *parts) audit(ctx context.Context) error {
	if err := p.config.AuditBackend.Run(ctx.Done()); err != nil {
		return fmt.Errorf("starting the audit log: %w", err)
	}
	<-ctx.Done()
	p.config.AuditBackend.Shutdown()
	return nil
}

// traces sends what is left of them at the end.
func (p *parts) traces(ctx context.Context) error {
	<-ctx.Done()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOff)
	defer cancel()
	if err := p.config.TracerProvider.Shutdown(limited); err != nil {
		klog.FromContext(ctx).Info("The last traces could not be sent", "err", err.Error())
	}
	return nil
}

// newHandler puts the doors together. Watches end when draining is done.
func (s *Server) newHandler(p *parts, draining context.Context) (*handler, error) {
	o := s.options
	h := &handler{
		clusters: p.clusters, agents: s.agents, metrics: s.metrics, domain: o.Domain, authenticator: p.authenticator, authorizer: p.authorizer,
		services: p.services, latencies: s.latencies, allowAnonymous: o.AllowAnonymous, via: s.via, draining: draining, probes: s.health.Handler(),
		requests: newLimiter("requests", o.RequestsPerUser, o.RequestsPerCluster),
		streams:  newLimiter("streams", o.StreamsPerUser, o.StreamsPerCluster),
		uploads:  newLimiter(unreadBytes, unreadPerUser, unreadPerCluster),
		answers:  newLimiter(unreadBytes, unreadPerUser, unreadPerCluster),
		memory:   s.memory,
	}
	h.proxy = h.newProxy()
	h.refusal = h.newRefusal(p.config)
	if h.revalidation = h.newRevalidation(o.RevalidateStreams); h.revalidation != nil {
		p.background = append(p.background, h.revalidation.run)
	}
	h.chain = h.newChain(p.config, o.Tracing.ConfigFile != "")
	var err error
	h.own, err = newGroup(p.config, h)
	return h, err
}

// forget drops everything about a cluster that is gone.
func (s *Server) forget(cluster string) {
	s.agents.Evict(cluster)
	s.metrics.forget(cluster)
	s.latencies.forget(cluster)
}

// run serves on listener. The process's parts go on until everything drained.
func (s *Server) run(ctx context.Context, listener net.Listener, p *parts) error {
	s.health.AddReadyCheck("clusters", p.clusters.Synced)
	s.health.AddReadyCheck("certificate", s.serving.Check)
	s.health.AddReadyCheck("proxy-server", s.prober.check)

	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	draining, drainWatches := context.WithCancel(parts)
	defer drainWatches()
	h, err := s.newHandler(p, draining)
	if err != nil {
		return err
	}
	group, parts := errgroup.WithContext(parts)
	background := append(p.background, s.serving.Run, s.proxy.Run, s.inner.Run, s.health.Run, s.prober.run,
		func(ctx context.Context) error {
			return s.agents.Recheck(ctx, func(c *pki.Certificate) error { return s.inner.Recheck(c, time.Now()) })
		})
	for _, part := range background {
		group.Go(func() error { return part(parts) })
	}
	group.Go(func() error {
		defer stop()
		return s.serve(ctx, parts, listener, h, drainWatches)
	})
	err = group.Wait()
	s.agents.Close()
	return errors.Join(err, s.dialer.Close())
}

// serve serves until ctx is done and drained, or a part of the process failed.
func (s *Server) serve(ctx, parts context.Context, listener net.Listener, h *handler, drainWatches func()) error {
	requests, cancelRequests := context.WithCancel(parts)
	defer cancelRequests()
	config := s.serving.ServerConfig(tls.RequestClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{
		Handler:           httprelay.HandleEarlyResponses(h),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       keepAliveTimeout,
		MaxHeaderBytes:    readHeaderBytes,
		TLSConfig:         config,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          discard,
	}
	if err := httprelay.ConfigureServer(server, maxStreams); err != nil {
		return fmt.Errorf("preparing to serve HTTP/2: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.secured(ctx, listener, config)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %q: %w", listener.Addr(), err)
	case <-parts.Done():
	case <-ctx.Done():
		s.drain(ctx, parts, server, h, drainWatches)
	}
	cancelRequests()
	_ = server.Close() // what is left was given its time
	waitFor(&h.inFlight, time.After(cutOff))
	<-failed
	return nil
}

// secured gives the connections of a listener when their TLS handshake is
// complete. At most two for each processor are worked on at a time, in an order in
// which a flood delays its own source: anyone may be able to send a ClientHello.
func (s *Server) secured(ctx context.Context, listener net.Listener, config *tls.Config) net.Listener {
	port := handshakes.New(handshakes.Options{Config: config, Limit: 2 * runtime.GOMAXPROCS(0), Timeout: handshakeTimeout,
		Dropped: func(reason string) { s.metrics.handshakesDropped.WithLabelValues(reason).Inc() }})
	return handshakes.NewListener(listener, port, klog.FromContext(ctx))
}

// drain lets requests end.
func (s *Server) drain(ctx, parts context.Context, server *http.Server, h *handler, drainWatches func()) {
	logger := klog.FromContext(ctx)
	logger.Info("Draining", "minDrainDuration", s.options.MinDrainDuration, "drainTimeout", s.options.DrainTimeout)
	s.health.Drain()
	select {
	case <-time.After(s.options.MinDrainDuration):
	case <-parts.Done():
		return
	}
	drainWatches()
	limit, cancel := context.WithTimeout(parts, s.options.DrainTimeout)
	defer cancel()
	if err := server.Shutdown(limit); err == nil && waitFor(&h.inFlight, limit.Done()) {
		logger.Info("Drained")
		return
	}
	logger.Info("Cutting off the requests that did not end in time")
}

// waitFor reports whether w got done before limit gave up.
func waitFor[T any](w interface{ Wait() }, limit <-chan T) bool {
	done := make(chan struct{})
	go func() {
		w.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-limit:
		return false
	}
}
