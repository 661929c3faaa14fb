package proxyserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Server is a proxy server. Make one with New and start it with Run, once.
type Server struct {
	options Options
	logger  klog.Logger // set by Run before anything is served
	metrics *serverMetrics
	health  *health.Server
	servers *serverCount

	konnectivity *server.ProxyServer
	registry     *agentRegistry
	// clientCarriers are those that clients dialed, to drain them.
	clientCarriers *pool.Pool
	conns          *peerConns
	memory         *memlimit.Gate
	peers          *peers        // nil without any
	untold         chan struct{} // closed when peers are not told of agents here any more
	inner          *innerClient
	clientSource   *pki.Reloader // nil on a Unix socket
	agentSource    *pki.Reloader
	sayLimit       rate.Sometimes // of a cluster's agents

	started chan struct{}
	addrs   Addrs // set before started is closed
}

// Addrs are the addresses that a Server listens on.
type Addrs struct{ Client, Agent, Health, Admin net.Addr }

// New checks the options and does no I/O.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	strategies, err := proxystrategies.ParseProxyStrategies(o.strategies())
	if err != nil {
		return nil, err
	}
	parameters, err := pki.ParseTLSParameters(o.TLSMinVersion, o.CipherSuites)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	s := &Server{
		options: *o,
		metrics: newServerMetrics(registry),
		memory:  memlimit.New(registry, "proxy server", "the chart's value resources.proxyServer.limits.memory"),
		started: make(chan struct{}), untold: make(chan struct{}),
		servers: &serverCount{file: o.ServerCountFile},
		konnectivity: server.NewProxyServer(o.ServerID, strategies, o.ServerCount,
			&server.AgentTokenAuthenticationOptions{}, o.XfrChannelSize),
		agentSource: pki.NewReloader(pki.Files{Cert: o.ClusterCert, Key: o.ClusterKey, CA: o.ClusterCACert, TLSProfile: o.TLSProfile}),
	}
	s.servers.n.Store(int64(o.ServerCount))
	s.registry = newAgentRegistry(o.Limits, s.noteSameName)
	s.registry.gone = s.noteGone
	s.registry.refused = func(limit string) { s.metrics.limited.WithLabelValues(limit).Inc() }
	if o.ClusterMetrics {
		registry.MustRegister(clusterAgents{s.registry})
	}
	s.sayLimit.Interval = time.Second
	s.conns = newPeerConns(s.metrics)
	s.clientCarriers = pool.New(pool.Config{Max: math.MaxInt})
	s.peers = s.newPeers()
	s.metrics.watchAgents(s.registry)
	s.metrics.watchCarriers("agents", s.registry.stats)
	s.metrics.watchCarriers("clients", s.clientCarriers.Stats)
	if s.peers != nil {
		s.metrics.watchCarriers("peers", s.peers.stats)
	}
	s.konnectivity.SetBackendDialTimeout(o.BackendDialTimeout)
	s.agentSource.TLS = parameters
	if o.UDSName == "" {
		s.clientSource = pki.NewReloader(pki.Files{Cert: o.ServerCert, Key: o.ServerKey, CA: o.ServerCACert, TLSProfile: o.TLSProfile})
		s.clientSource.TLS = parameters
	}
	s.health = health.New(health.Options{
		Address:  address(o.HealthBindAddress, o.HealthPort),
		Gatherer: prometheus.Gatherers{s.withBackends(prometheus.DefaultGatherer, strategies), registry},
	})
	s.health.AddReadyCheck("certificates", s.checkCertificates)
	if o.AgentIdentity == IdentityCertificate {
		manager := newBalancedManager()
		s.konnectivity.BackendManagers = []server.BackendManager{manager}
		s.konnectivity.Readiness = manager
	} else {
		s.health.AddReadyCheck("agents", s.checkAgents)
	}
	return s, nil
}

// Started is closed once every port is open.
func (s *Server) Started() <-chan struct{} { return s.started }

// Addrs are valid once Started is closed.
func (s *Server) Addrs() Addrs { return s.addrs }

// Run serves until ctx is done and then drains: the server becomes unready and accepts
// no new connections and agents, while open connections continue until they end or the
// graceful shutdown timeout passes.
func (s *Server) Run(ctx context.Context) error {
	s.logger = klog.FromContext(ctx)
	for _, source := range s.sources() {
		if err := source.Load(); err != nil {
			return err
		}
	}
	if _, err := s.servers.load(); err != nil {
		return err
	}
	s.conns.logger = s.logger
	watched, err := s.watchClusters()
	if err != nil {
		return err
	}
	ports, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer ports.close()
	s.inner = newInnerClient(s.konnectivity)
	clients, agents := s.newFrontend(ports), s.newAgentServer(ports)

	// What serves outlives ctx by the drain.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, life := errgroup.WithContext(life)
	if watched != nil {
		group.Go(func() error { return s.runClusters(life, watched) })
	}
	s.serve(life, group, ports, clients, agents)
	select {
	case <-s.health.Started():
		s.addrs = Addrs{ports.client.Addr(), ports.agent.Addr(), s.health.Addr(), ports.admin.Addr()}
		s.logger.Info("Proxy server started", "serverID", s.options.ServerID, "clients", s.addrs.Client.String(),
			"agents", s.addrs.Agent.String(), "agentIdentity", s.options.AgentIdentity, "mode", s.options.Mode)
		close(s.started)
	case <-life.Done():
	}
	select {
	case <-ctx.Done():
		s.drain(life, s.options.GracefulShutdownTimeout, clients, ports)
	case <-life.Done():
		s.drain(life, 0, clients, ports)
	}
	agents.Stop()
	s.registry.end()
	s.inner.stop()
	stop()
	return group.Wait()
}

// serve starts everything that lives until life ends.
func (s *Server) serve(life context.Context, group *errgroup.Group, ports *ports, clients frontend, agents *grpc.Server) {
	for _, source := range s.sources() {
		group.Go(func() error { return source.Run(life) })
	}
	group.Go(func() error { return s.conns.run(life) })
	group.Go(func() error { return s.health.Run(life) })
	group.Go(func() error {
		return health.Admin{
			Metrics: s.health.Handler(), Profiling: s.options.EnableProfiling, ContentionProfiling: s.options.EnableContentionProfiling,
		}.Serve(life, ports.admin)
	})
	if s.peers != nil {
		group.Go(func() error { return s.peers.run(life) })
	}
	if s.options.ServerCountFile != "" {
		group.Go(func() error { return s.servers.run(life, s.registry.tellCount) })
	}
	group.Go(clients.serve)
	group.Go(s.inner.serve)
	for _, mux := range ports.muxes {
		go mux.serve()
	}
	group.Go(func() error {
		// The drain closes the listener and leaves the agents' streams alone.
		if err := agents.Serve(ports.agent); err != nil && !s.health.Draining() {
			return fmt.Errorf("serving agents: %w", err)
		}
		return nil
	})
}

// longestMove is how long the server goes on for agents that have no other one.
const longestMove = time.Minute

// drain ends the service in an order that keeps connections, and lets every new dial
// find a server. At first everything is served as before, while clients and agents
// learn that they should go elsewhere, until no client has connected for a while; then no
// new connections are accepted, and open ones continue. Agents without another server
// delay that for longestMove at most: a fleet that moved at once would overload the new
// server, and this server may be the only one. Konnectivity's agents are told last, by the end of a stream that carries
// nothing, because they drop their connections as soon as their server stops. If a part
// of the process fails, life ends, and the drain with it.
func (s *Server) drain(life context.Context, timeout time.Duration, clients frontend, ports *ports) {
	s.health.Drain()
	s.registry.drain(min(timeout, longestMove))
	s.logger.Info("Draining", "timeout", timeout)
	if timeout > 0 {
		ports.arrivals.AwaitLull(life, s.options.MinDrainDuration)
	}
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	if stayed := awaitMoves(ctx, s.registry.staying); stayed > 0 && timeout > 0 {
		s.logger.Info("Agents have not found another proxy server", "agents", stayed)
	}
	_ = ports.agent.Close()
	close(s.untold)
	go s.endIdleStreams(ctx)
	carriers := make(chan bool, 1)
	go func() { carriers <- s.clientCarriers.Drain(ctx) == nil }()
	streams := clients.drain(ctx)
	if quiet := <-carriers; quiet && streams {
		s.logger.Info("Drained")
	} else {
		s.logger.Info("Connections cut at the end of the drain")
	}
	_ = s.clientCarriers.Close()
}

// awaitMoves waits until no agent stays, for longestMove or until ctx is done.
func awaitMoves(ctx context.Context, staying func() int) (stayed int) {
	ctx, cancel := context.WithTimeout(ctx, longestMove)
	defer cancel()
	return health.AwaitIdle(ctx, 0, staying)
}

func (s *Server) endIdleStreams(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		s.registry.endIdleStreams()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) sources() []*pki.Reloader {
	if s.clientSource == nil {
		return []*pki.Reloader{s.agentSource}
	}
	return []*pki.Reloader{s.agentSource, s.clientSource}
}

func (s *Server) checkCertificates() error {
	var problems []error
	for _, source := range s.sources() {
		problems = append(problems, source.Check())
	}
	return errors.Join(problems...)
}

func (s *Server) checkAgents() error {
	if ready, message := s.konnectivity.Readiness.Ready(); !ready && s.registry.count(true) == 0 {
		return errors.New(message)
	}
	return nil
}

// frontend serves clients.
type frontend interface {
	// serve blocks until drain ended it.
	serve() error
	// drain takes no new connections, waits for those that are open, and cuts
	// them when ctx is done. It reports whether they ended by themselves.
	drain(ctx context.Context) bool
}

type grpcFrontend struct {
	server   *grpc.Server
	listener net.Listener
}

func (f *grpcFrontend) serve() error {
	if err := f.server.Serve(f.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving clients: %w", err)
	}
	return nil
}

func (f *grpcFrontend) drain(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.server.GracefulStop()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		// Handlers that wait for an agent end when the agents' streams do.
		f.server.Stop()
		return false
	}
}
