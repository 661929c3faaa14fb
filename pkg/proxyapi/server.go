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
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/apigroup"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/replica"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/ui"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/view"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	readHeaderTimeout = 32 * time.Second // kube-apiserver's
	keepAliveTimeout  = 3 * time.Minute
	// handshakeTimeout is for a TLS handshake.
	handshakeTimeout = 10 * time.Second
	// readHeaderBytes are read of a request's URL and headers, see scope.MaxHeaderBytes.
	readHeaderBytes = httprelay.MaxHeaderBytes
	// maxStreams is how many requests share one HTTP/2 connection of a client, the
	// hub's kube-apiserver among them. More have another one.
	maxStreams = 250
)

// Server is the proxy API.
type Server struct {
	options Options
	// serving, towards clients; proxy, towards the proxy server; inner,
	// towards agents.
	serving, proxy, inner *pki.Reloader
	dialer                *tunnel.Dialer
	metrics               *metrics.Metrics
	health                *health.Server
	// dial makes a connection through the tunnel.
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	agents    *agentclient.Client // set by newHandler
	prober    *prober
	latencies *relay.Latencies
	memory    *memlimit.Gate
	// uploads and answers are limits of the bytes of bodies that are not read.
	uploads, answers *scope.Limiter
	via              scope.Via // set by Run
	positions        *position.Store
	sessions         *session.Registry
	// recordings are nil if no session is recorded, and recorder if a Service gets none.
	recordings *recording.Store
	recorder   *pki.Reloader
	peers      *replica.Peers   // nil without any
	index      *indexapi.Client // nil without a fleet index
	// newFleetHandler makes what serves views. Watches end when draining is closed.
	newFleetHandler func(draining <-chan struct{}) view.FleetHandler
}

// New checks the options and does no I/O.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	s := &Server{
		options: *o,
		serving: pki.NewReloader(pki.Files{Cert: o.ServerCert, Key: o.ServerKey, TLSProfile: o.TLSProfile}),
		proxy:   pki.NewReloader(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.ProxyCACert, TLSProfile: o.TLSProfile}),
		inner:   pki.NewReloader(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.AgentCACert, TLSProfile: o.TLSProfile}),
		metrics: metrics.New(registry), memory: memlimit.New(registry, "proxy API", "the chart's value resources.proxyAPI.limits.memory"),
		health: health.New(health.Options{Address: address(o.HealthBindAddress, o.HealthPort),
			// k8s.io/apiserver's own are of the process too.
			Gatherer: prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}}),
		latencies: relay.NewLatencies(), positions: new(position.Store),
		uploads: scope.NewLimiter(scope.UnreadBytes, scope.UnreadPerUser, scope.UnreadPerCluster).WithPerPair(scope.UnreadPerPair),
		answers: scope.NewLimiter(scope.UnreadBytes, scope.UnreadPerUser, scope.UnreadPerCluster).WithPerPair(scope.UnreadPerPair),
	}
	s.newFleetHandler = func(draining <-chan struct{}) view.FleetHandler {
		return fleetview.New(fleetview.Options{Draining: draining, Positions: s.positions})
	}
	s.sessions = session.NewRegistry(s.metrics)
	if o.Recording.URL != "" {
		s.recorder = pki.NewReloader(o.Recording.Credentials())
	}
	if o.Recording.Enabled() {
		s.recordings = recording.NewStore(s.options.Recording.Store(s.recorder), s.metrics.Recordings())
	}
	if len(o.Peers) > 0 {
		s.peers = replica.New(o.Peers, o.PeerPort, s.positions, replica.PeerTransport(s.proxy), s.metrics)
		s.peers.Sessions = s.sessions
		s.positions.Ask = s.peers.Ask
	}
	if o.FleetIndex != "" {
		s.index = indexapi.NewClient(o.FleetIndex, s.proxy)
	}
	proxyTLS := func() *tls.Config {
		host, _, _ := net.SplitHostPort(o.ProxyServer) // Validate looked at it
		return s.proxy.ClientConfig(host)
	}
	s.prober = &prober{address: o.ProxyServer, next: o.NextProxyServer, tlsConfig: proxyTLS, reachable: s.metrics.Reachable, probed: make(chan struct{})}
	s.dialer = &tunnel.Dialer{ProxyServer: o.ProxyServer, Address: s.prober.server, TLS: proxyTLS}
	s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.dialer.DialContext(ctx, network, address)
		return conn, s.prober.expecting(err)
	}
	return s, nil
}

// Run serves until ctx is done, and then until the last request ended or the
// drain timeout passed.
func (s *Server) Run(ctx context.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	hub, err := s.options.hubConfig()
	if err != nil {
		return err
	}
	if s.via, err = scope.ViaHub(hub); err != nil {
		return err
	}
	watched, err := clusters.New(hub)
	if err != nil {
		return err
	}
	watched.OnGone(s.forget)
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return fmt.Errorf("making a client for the hub: %w", err)
	}
	views, err := clusters.NewViews(hub, watched)
	if err != nil {
		return err
	}
	policies, err := clusters.NewPolicies(hub, views)
	if err != nil {
		return err
	}
	parts, err := newParts(&s.options, s.metrics, client, watched, views, policies, watched.Run, views.Run, policies.Run)
	if err != nil {
		return err
	}
	if s.options.KarmadaAPI {
		if err := parts.addKarmada(hub, watched, s.options.KarmadaControlPlane); err != nil {
			return err
		}
	}
	listen := address(s.options.ServerBindAddress, s.options.ServerPort)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening on %q: %w", listen, err)
	}
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr().String(), "proxyServer", s.options.ProxyServer)
	return s.run(ctx, listener, parts)
}

// load reads all certificates, which the first request may need.
func (s *Server) load() error {
	for _, source := range []*pki.Reloader{s.serving, s.proxy, s.inner, s.recorder} {
		if source == nil {
			continue
		}
		if err := source.Load(); err != nil {
			return err
		}
	}
	return nil
}

// newHandler puts the endpoints together. Watches end when draining is done.
func (s *Server) newHandler(p *parts, draining context.Context) (*handler, error) {
	o := s.options
	s.agents = agentclient.New(agentclient.Options{Dial: s.dial, TLS: s.inner.ClientConfig, Admission: p.clusters, Metrics: s.metrics.Agents()})
	f := &filter.Filters{
		Clusters: p.clusters, Views: p.views, Authenticator: p.authenticator, Authorizer: p.authorizer, Services: p.services, Policies: p.policies, Karmada: p.karmada, Metrics: s.metrics, Sessions: s.sessions,
		AllowAnonymous: o.AllowAnonymous, Via: s.via, Memory: s.memory,
		Requests: scope.NewLimiter("requests", o.RequestsPerUser, o.RequestsPerCluster).WithPerPair(o.RequestsPerPair).RaisedBy(scope.ByValues("requests")),
		Streams:  scope.NewLimiter("streams", o.StreamsPerUser, o.StreamsPerCluster).WithPerPair(o.StreamsPerPair).RaisedBy(scope.ByValues("streams")),
		ViewRequests: &scope.Limiter{What: "requests for fleet views", All: o.ViewRequests, PerUser: o.ViewRequestsPerUser, InFlight: map[string]int{},
			Raises: scope.Raises{All: "--max-view-requests (the chart's value extraArgs.proxyAPI)", PerUser: "--max-view-requests-per-user (the chart's value extraArgs.proxyAPI)"}},
		Uploads: s.uploads,
	}
	if s.recordings != nil {
		s.sessions.Record(&o.Recording, s.recordings, p.views)
		p.background = append(p.background, s.recordings.Run)
		if s.recorder != nil {
			p.background = append(p.background, s.recorder.Run)
		}
	}
	h := &handler{Filters: f, relay: relay.NewRelay(draining, f, s.agents, s.latencies, s.answers), connector: &relay.Connector{Filters: f, Agents: s.agents}, endpoints: scope.Endpoints{Domain: o.Domain, Karmada: p.karmada != nil}, probes: s.health.Handler(), refusal: f.NewRefusal(p.config)}
	if h.revalidation = filter.NewRevalidation(f, o.RevalidateStreams); h.revalidation != nil {
		p.background = append(p.background, h.revalidation.Run)
	}
	h.exposure = filter.NewExposure(f)
	p.background = append(p.background, h.exposure.Run)
	h.fleet = &view.Fleet{Filters: f, Relay: h.relay, Revalidation: h.revalidation, Handler: s.newFleetHandler(draining.Done()), Held: fleet.NewMemory()}
	if s.index != nil { // a nil *Client would be an Index
		h.fleet.Index = s.index
	}
	h.chain = h.newChain(p.config, o.Tracing.ConfigFile != "")
	var err error
	h.own, err = apigroup.NewGroup(p.config, &apigroup.ClusterAPI{Clusters: p.clusters, Authorizer: p.authorizer, Agents: s.agents, Latencies: s.latencies, Exposed: p.services.Entries, Permit: f.Permit}, &apigroup.SessionStorage{Here: s.sessions, Peers: s.peers}, p.karmada)
	h.own = apigroup.WithFleetViews(h.own, p.views)
	if o.UI {
		h.page = ui.New()
	}
	return h, err
}

// forget drops everything about a cluster that is gone.
func (s *Server) forget(cluster string) {
	s.agents.Evict(cluster)
	s.metrics.Forget(cluster)
	s.latencies.Forget(cluster)
}

// run serves on listener. Background work goes on until everything drained.
func (s *Server) run(ctx context.Context, listener net.Listener, p *parts) error {
	s.health.AddReadyCheck("clusters", p.clusters.Synced)
	s.health.AddReadyCheck("policies", p.policies.Synced)
	s.health.AddReadyCheck("certificate", s.serving.Check)
	s.health.AddReadyCheck("proxy-server", s.prober.check)

	// running outlives ctx: it is done when everything has drained.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	draining, drainWatches := context.WithCancel(running)
	defer drainWatches()
	h, err := s.newHandler(p, draining)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(running)
	background := append(p.background, s.serving.Run, s.proxy.Run, s.inner.Run, s.health.Run, s.prober.run,
		func(ctx context.Context) error {
			return s.agents.Recheck(ctx, func(c *pki.Certificate) error { return s.inner.Recheck(c, time.Now()) })
		})
	if s.peers != nil {
		s.health.AddReadyCheck("peers", s.peers.Ready)
		background = append(background, s.peers.Run, s.servePeers)
	}
	for _, run := range background {
		group.Go(func() error { return run(running) })
	}
	group.Go(func() error {
		defer stop()
		return s.serve(ctx, running, listener, h, drainWatches)
	})
	err = group.Wait()
	s.agents.Close()
	if s.index != nil {
		s.index.Close()
	}
	return errors.Join(err, s.dialer.Close())
}

// serve serves until ctx is done and drained, or running is done.
func (s *Server) serve(ctx, running context.Context, listener net.Listener, h *handler, drainWatches func()) error {
	requests, cancelRequests := context.WithCancel(running)
	defer cancelRequests()
	config := s.serving.ServerConfig(tls.RequestClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	httpServer := &http.Server{
		Handler:           httprelay.HandleEarlyResponses(h),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       keepAliveTimeout,
		MaxHeaderBytes:    readHeaderBytes,
		TLSConfig:         config,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          relay.Discard,
	}
	if err := httprelay.ConfigureServer(httpServer, maxStreams); err != nil {
		return fmt.Errorf("preparing to serve HTTP/2: %w", err)
	}
	arrivals := &health.Arrivals{Listener: listener}
	failed := make(chan error, 1)
	go func() { failed <- httpServer.Serve(s.secured(ctx, arrivals, config)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %q: %w", listener.Addr(), err)
	case <-running.Done():
	case <-ctx.Done():
		s.drain(ctx, running, arrivals, httpServer, h, drainWatches)
	}
	cancelRequests()
	_ = httpServer.Close() // what is left was given its time
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOff)
	defer cancel()
	health.AwaitIdle(limit, 0, h.busy)
	<-failed
	return nil
}

// secured returns the connections of a listener when their TLS handshake is
// complete. At most two for each processor are worked on at a time, in an order in
// which a flood delays its own source: anyone may be able to send a ClientHello.
func (s *Server) secured(ctx context.Context, listener net.Listener, config *tls.Config) net.Listener {
	port := handshakes.New(handshakes.Options{Config: config, Limit: 2 * runtime.GOMAXPROCS(0), Timeout: handshakeTimeout,
		Dropped: func(reason string) { s.metrics.HandshakesDropped.WithLabelValues(reason).Inc() }})
	return handshakes.NewListener(listener, port, klog.FromContext(ctx))
}

// servePeers serves the other replicas.
func (s *Server) servePeers(ctx context.Context) error {
	listen := address(s.options.PeerBindAddress, s.options.PeerPort)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening for peers on %q: %w", listen, err)
	}
	config := s.proxy.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"http/1.1"}
	return s.peers.Serve(ctx, s.proxy, s.secured(ctx, listener, config))
}

// beginTelling tells peers what they must know when this process has ended. The function
// that it returns ends that.
func (s *Server) beginTelling(ctx context.Context) (end func()) {
	if s.peers == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.peers.Drain(ctx, done)
	}()
	return func() {
		close(done)
		<-ended
	}
}

// drain takes requests until nobody connects any more, and lets them end.
func (s *Server) drain(ctx, running context.Context, arrivals *health.Arrivals, httpServer *http.Server, h *handler, drainWatches func()) {
	logger := klog.FromContext(ctx)
	logger.Info("Draining", "minDrainDuration", s.options.MinDrainDuration, "gracefulShutdownTimeout", s.options.GracefulShutdownTimeout)
	s.health.Drain()
	arrivals.AwaitLull(running, s.options.MinDrainDuration)
	if running.Err() != nil {
		return
	}
	defer s.beginTelling(running)()
	drainWatches()
	limit, cancel := context.WithTimeout(running, s.options.GracefulShutdownTimeout)
	defer cancel()
	if err := httpServer.Shutdown(limit); err == nil && health.AwaitIdle(limit, 0, h.busy) == 0 {
		logger.Info("Drained")
		return
	}
	logger.Info("Cutting off the requests that did not end in time")
}
