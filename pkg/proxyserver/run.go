package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver/konnectivity"
)

// New checks the options and does no I/O.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
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
		servers:     &serverCount{file: o.ServerCountFile},
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
	s.konnectivity = s.newKonnectivity()
	s.metrics.watchAgents(s.registry, s.konnectivity.Backends)
	s.metrics.watchCarriers("agents", s.registry.stats)
	s.metrics.watchCarriers("clients", s.clientCarriers.Stats)
	if s.peers != nil {
		s.metrics.watchCarriers("peers", s.peers.stats)
	}
	s.clientSource = pki.NewReloader(pki.Files{Cert: o.ServerCert, Key: o.ServerKey, CA: o.ServerCACert, TLSProfile: o.TLSProfile})
	s.agentSource.TLS, s.clientSource.TLS = parameters, parameters
	s.health = health.New(health.Options{
		Address:  address(o.HealthBindAddress, o.HealthPort),
		Gatherer: prometheus.Gatherers{s.konnectivity.Gatherer(s.registry.count), registry},
	})
	s.health.AddReadyCheck("certificates", s.checkCertificates)
	if o.KonnectivityAgents {
		s.health.AddReadyCheck("agents", s.checkAgents)
	}
	return s, nil
}

// newPeers is nil if there are none.
func (s *Server) newPeers() *peers {
	if len(s.options.Peers) == 0 {
		return nil
	}
	return &peers{
		addresses: s.options.Peers, self: s.options.ServerID, limits: s.options.Limits,
		arrived: func() { s.registry.tellCount(s.servers.get()) }, refused: s.metrics.peerDialsRejected.Inc,
		dial: s.dialPeer, lookup: net.DefaultResolver.LookupHost, now: make(chan struct{}, 1), resolved: make(chan struct{}),
		known: map[string]*peerServer{}, last: map[string]*peerServer{},
	}
}

// newKonnectivity makes the server to those that speak konnectivity's protocol.
func (s *Server) newKonnectivity() *konnectivity.Server {
	o := konnectivity.Options{ServerID: s.options.ServerID, ServerCount: s.options.ServerCount, Agents: s.options.KonnectivityAgents,
		DialTimeout: s.options.DialTimeout, KeepaliveTime: s.options.KeepaliveTime}
	return konnectivity.New(o, konnectivity.Core{
		AdmitClient: s.admitClient, Open: s.open, Serves: s.registry.knows,
		Overloaded: func() error { return s.memory.Err() },
		BeginConnection: func(conn *tls.Conn, target string) (ended func(sent, received int64)) {
			return s.beginConnection(callerOn(conn), target)
		},
		AdmitAgent: func(conn *tls.Conn, ids, identifiers []string) (cluster string, err error) {
			link := agentLink{source: handshakes.SourceOf(conn.RemoteAddr()), peer: conn.RemoteAddr().String()}
			err = s.admitAgent(&link, conn, declaration{ids: ids, identifiers: identifiers})
			return link.cluster, err
		},
	})
}

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
	serving := s.shareOut(ports)

	// Service outlives ctx by the drain.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, life := errgroup.WithContext(life)
	if watched != nil {
		group.Go(func() error { return s.runClusters(life, watched) })
	}
	s.serve(life, group, ports, serving)
	select {
	case <-s.health.Started():
		s.addrs = Addrs{ports.client.Addr(), ports.agent.Addr(), s.health.Addr(), ports.admin.Addr()}
		s.logger.Info("Proxy server started", "serverID", s.options.ServerID, "clients", s.addrs.Client.String(),
			"agents", s.addrs.Agent.String(), "konnectivityAgents", s.options.KonnectivityAgents)
		close(s.started)
	case <-life.Done():
	}
	select {
	case <-ctx.Done():
		s.drain(life, s.options.GracefulShutdownTimeout, ports)
	case <-life.Done():
		s.drain(life, 0, ports)
	}
	s.konnectivity.StopAgents()
	s.registry.end()
	stop()
	return group.Wait()
}

// serve starts everything that lives until life ends.
func (s *Server) serve(life context.Context, group *errgroup.Group, ports *ports, serving []func() error) {
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
	for _, serve := range serving {
		group.Go(serve)
	}
	go ports.clients.serve()
	go ports.agents.serve()
}

// longestMove is how long the server goes on for agents that have no other one.
const longestMove = time.Minute

// drain ends the service in an order that keeps connections, and lets every new dial
// find a server. At first everything is served as before, while clients and agents
// learn that they should go elsewhere, until no client has connected for a while: how long a
// Service leads them here depends on kube-proxy, and how long a load balancer does on its
// probes. Then no new connections are accepted, and open ones continue. A dial to an agent
// without an idle carrier goes to the peers first meanwhile, because a Service leads agents to
// other servers by now; asked for carriers all the same, an agent that has no other server
// looks for one at once. Agents without another server delay that for longestMove at most: a
// fleet that moved at once would overload the new server, and this server may be the only one.
// Konnectivity's agents cannot be told, and drop their connections as soon as their server
// stops. If a part of the process fails, life ends, and the drain with it.
func (s *Server) drain(life context.Context, timeout time.Duration, ports *ports) {
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
	_ = ports.agents.Close()
	close(s.untold)
	carriers := make(chan bool, 1)
	go func() { carriers <- s.clientCarriers.Drain(ctx) == nil }()
	streams := s.konnectivity.DrainClients(ctx)
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

// watchClusters makes the watch of the hub's clusters, if there is to be one.
func (s *Server) watchClusters() (*clusters.Clusters, error) {
	if !s.options.WatchManagedClusters {
		return nil, nil
	}
	config, err := s.options.hubConfig()
	if err != nil {
		return nil, err
	}
	watched, err := clusters.New(config)
	if err != nil {
		return nil, err
	}
	watched.OnGone(func(string) { s.conns.look() })
	s.conns.clusters = watched
	return watched, nil
}

// runClusters watches the hub until ctx is done. Agents that came before its first
// answer are looked at after it.
func (s *Server) runClusters(ctx context.Context, watched *clusters.Clusters) error {
	go func() {
		if watched.WaitForSync(ctx); ctx.Err() == nil {
			s.metrics.clustersSynced.Set(1)
			s.conns.look()
		}
	}()
	if err := watched.Run(ctx); err != nil {
		return fmt.Errorf("watching managed clusters: %w", err)
	}
	return nil
}
