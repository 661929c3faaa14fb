package proxyagent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/index"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/oidc"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// Agent is one agent process.
type Agent struct {
	options  *Options
	source   *pki.Reloader
	registry *prometheus.Registry
	metrics  *agentMetrics
	memory   *memlimit.Gate
	health   *health.Server

	handshakes handshakes
	conns      *connDrainer
	handler    *http.Server // set by startHandler
}

// New makes an agent. Nothing is read or dialed before Run.
func New(o *Options) (*Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	metrics := newAgentMetrics(registry)
	a := &Agent{
		options:  o,
		registry: registry, metrics: metrics, memory: memlimit.New(registry, "proxy agent", "resourceRequirements in the AddOnDeploymentConfig of that cluster's addon"),
		handshakes: handshakes{failures: metrics.handshakeFailures},
		conns:      newConnDrainer(),
		source:     pki.NewReloader(pki.Files{Cert: o.AgentCert, Key: o.AgentKey, CA: o.CACert, TLSProfile: o.TLSProfile}),
		health: health.New(health.Options{
			Address:  net.JoinHostPort(o.HealthServerHost, strconv.Itoa(o.HealthServerPort)),
			Gatherer: prometheus.Gatherers{prometheus.DefaultGatherer, registry},
		}),
	}
	a.source.Changed = func() {
		if servers := a.conns.servers.Load(); servers != nil {
			servers.presentCertificate()
		}
	}
	return a, nil
}

// Run works until ctx is done and the drain after it has ended.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.source.Load(); err != nil {
		return err
	}
	if err := waitForOwnCertificate(ctx, a.source, a.options.ClusterName); err != nil {
		return err
	}
	// The service of connections outlives ctx by the drain.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, serving := errgroup.WithContext(serving)
	connected, err := a.start(ctx, serving, group)
	if err != nil {
		stop()
		return errors.Join(err, group.Wait())
	}
	a.health.AddReadyCheck("server-connected", func() error {
		if connected() == 0 {
			if err := a.handshakes.lastError(); err != nil {
				return fmt.Errorf("no tunnel to a proxy server: %w", err)
			}
			return errors.New("no tunnel to a proxy server; is the hub reachable?")
		}
		return nil
	})
	group.Go(func() error { return a.source.Run(serving) })
	group.Go(func() error { return a.health.Run(serving) })
	group.Go(func() error { return a.runAdmin(serving) })
	group.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
			a.drain(serving)
		case <-serving.Done():
		}
		return nil
	})
	return group.Wait()
}

// start starts the tunnels and what they lead to. The function it returns says
// how many tunnels are up.
func (a *Agent) start(ctx, serving context.Context, group *errgroup.Group) (connected func() int, err error) {
	o := a.options
	decide := decision(func(_, address string) (policy.Target, error) { return policy.Target{Address: address}, nil })
	var handler *connListener
	var cluster *rest.Config
	if o.ClusterName != "" {
		if cluster, err = clusterConfig(o.Kubeconfig); err != nil {
			return nil, err
		}
		if decide, handler, err = a.startHandler(serving, group, cluster); err != nil {
			return nil, err
		}
	} else {
		klog.FromContext(ctx).Info("No --cluster-name: this is a plain agent, which dials whatever it is asked for")
	}
	if o.EnablePortForwardProxy {
		if err := a.startPortForward(serving, group); err != nil {
			return nil, err
		}
	}
	servers := a.startServers(ctx, serving, group, decide, handler)
	if cluster != nil && o.AddonLeaseNamespace != "" {
		client, err := kubernetes.NewForConfig(cluster)
		if err != nil {
			return nil, fmt.Errorf("preparing a client of the managed cluster: %w", err)
		}
		lease := &addonLease{
			leases:    client.CoordinationV1().Leases(o.AddonLeaseNamespace),
			connected: func() bool { return servers.countConnected() > 0 },
		}
		group.Go(func() error { return lease.run(ctx) })
	}
	return servers.countConnected, nil
}

// startHandler serves the proxy API's requests and returns what may be dialed, the handler
// included. Connections come from carriers, by the connListener. The listener serves processes
// on the same address that hold the proxy API's certificate, such as tests.
func (a *Agent) startHandler(serving context.Context, group *errgroup.Group, cluster *rest.Config) (decision, *connListener, error) {
	o := a.options
	apiServer, err := apiServerAddress(cluster)
	if err != nil {
		return nil, nil, err
	}
	forwarded, running, err := services(o, cluster, a.metrics.exposedServicesInvalid)
	if err != nil {
		return nil, nil, err
	}
	for _, run := range running {
		group.Go(func() error { return run(serving) })
	}
	access := a.startAccess(serving, group)
	if o.EnableFleetIndex {
		feeds, err := index.NewFeeds(cluster)
		if err != nil {
			return nil, nil, err
		}
		access.Index = feeds
	}
	shown, err := shownMetrics(a.registry, o.PodName)
	if err != nil {
		return nil, nil, err
	}
	server, err := apihandler.NewServer(cluster, o.tcp(), a.source, forwarded, access, apihandler.Metrics{Registry: a.registry, Agent: shown})
	if err != nil {
		return nil, nil, err
	}
	server.Handler, server.ConnContext, server.ConnState = a.conns.handler(server.Handler), a.conns.via, a.conns.watch
	a.handler = server
	address := net.JoinHostPort(o.HandlerBindAddress, strconv.Itoa(o.HandlerPort))
	var lc net.ListenConfig
	listener, err := lc.Listen(serving, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the proxy API's requests on %q: %w", address, err)
	}
	direct := newConnListener(listener.Addr())
	for _, l := range []net.Listener{listener, direct} {
		group.Go(func() error {
			stop := context.AfterFunc(serving, func() { _ = server.Close() })
			defer stop()
			if err := server.ServeTLS(connect.Listener{Listener: l}, "", ""); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving the proxy API's requests: %w", err)
			}
			return nil
		})
	}
	destinations := policy.Policy{
		Cluster:        o.ClusterName,
		AgentNamespace: o.AgentInstallNamespace,
		KubeAPIServer:  apiServer,
		Handler:        listener.Addr().String(),
	}
	return capped(destinations, access.Owner), direct, nil
}

// startAccess starts what the handler asks about identities.
func (a *Agent) startAccess(serving context.Context, group *errgroup.Group) apihandler.Access {
	owner := ownerpolicy.NewFolder(a.options.OwnerPolicy, a.registry)
	owner.Load()
	group.Go(func() error { return owner.Run(serving) })
	access := apihandler.Access{Owner: owner.Policy, NoHubUsers: !a.options.EnableImpersonation, OnHub: a.options.OnHub, ExtraKeys: a.options.ExtraKeys}
	if a.options.OIDC.IssuerURL != "" {
		provider := oidc.New(a.options.OIDC)
		group.Go(func() error { return provider.Run(serving) })
		access.OIDC = provider
	}
	return access
}

// clusterConfig is the way to the managed cluster's kube-apiserver. The proxy of the environment is
// the one before the hub: it does not lead to the cluster's own network, nor need it know what is
// asked there. A kubeconfig may name another proxy.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	cluster, err := flags.RESTConfig("kubeconfig", kubeconfig)
	if err != nil {
		return nil, err
	}
	if cluster.Proxy == nil {
		cluster.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return cluster, nil
}

// startServers starts to look for proxy servers. It drains when ctx ends, and stops with serving.
func (a *Agent) startServers(ctx, serving context.Context, group *errgroup.Group, decide decision, handler *connListener) *servers {
	o := a.options
	dialer := &carrierDialer{
		address:    o.proxyServer(),
		serverName: o.ProxyServerHost, agentID: o.AgentID, identifiers: o.AgentIdentifiers, process: rand.Text(), source: a.source, decide: decide, handler: handler,
		tcp:        o.tcp(),
		handshakes: &a.handshakes, pingAfter: o.KeepaliveTime,
		handshakeTimeout: o.HandshakeTimeout, targetTimeout: o.TargetDialTimeout,
		memory: a.memory, metrics: a.metrics,
	}
	servers := newServers(ctx, dialer, pool.Config{MinIdle: o.IdleCarriers, Max: o.MaxCarriers}, dial.Jitter(o.SyncInterval, o.SyncIntervalCap))
	context.AfterFunc(serving, servers.close)
	a.conns.servers.Store(servers)
	group.Go(func() error {
		servers.run(servers.connect)
		return nil
	})
	return servers
}

func (a *Agent) startPortForward(serving context.Context, group *errgroup.Group) error {
	o := a.options
	hub, err := flags.RESTConfig("hub-kubeconfig", o.HubKubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return fmt.Errorf("preparing a client of the hub: %w", err)
	}
	address := o.proxyServer()
	var lc net.ListenConfig
	listener, err := lc.Listen(serving, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for connections to forward on %q: %w", address, err)
	}
	forwarder := &portForwarder{hub: hub, pods: client, namespace: o.ProxyServerNamespace, timeout: dialTimeout}
	group.Go(func() error { return forwarder.run(serving, listener) })
	return nil
}

// runAdmin serves profiles, where they are asked for, until ctx is done.
// Metrics are where the probes are, and this port leads there.
func (a *Agent) runAdmin(ctx context.Context) error {
	o := a.options
	address := net.JoinHostPort(o.AdminBindAddress, strconv.Itoa(o.AdminServerPort))
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for administrators on %q: %w", address, err)
	}
	return health.Admin{
		Metrics: a.health.Handler(), Profiling: o.EnableProfiling, ContentionProfiling: o.EnableContentionProfiling,
	}.Serve(ctx, listener)
}

// lastAnswers is how long requests may take that come just before the end of a drain.
const lastAnswers = 3 * time.Second

// drain serves new dials for the minimum drain duration, and until no connection is left
// after that, or the drain timeout, which counts from there. Then it refuses new dials, which
// servers send to another agent, and returns when what came just before has ended too.
// The servers were told at its beginning.
func (a *Agent) drain(serving context.Context) {
	logger := klog.FromContext(serving)
	logger.Info("Draining", "timeout", a.options.GracefulShutdownTimeout)
	a.health.Drain()
	a.conns.ending.Store(true)
	ctx, cancel := context.WithTimeout(serving, a.options.MinDrainDuration+a.options.GracefulShutdownTimeout)
	defer cancel()
	servers := a.conns.servers.Load()
	used := func() int { return servers.countOpen() - a.conns.countUnused() }
	health.AwaitIdle(ctx, a.options.MinDrainDuration, used)
	servers.dialer.ending.Store(true)
	left := health.AwaitIdle(ctx, 0, used)
	if left > 0 && serving.Err() == nil {
		logger.Info("Ending connections that outlived the drain", "connections", servers.countOpen())
	}
	if a.handler != nil {
		finish(serving, a.handler)
	}
}

// finish lets requests end that came just before the end of a drain. Their clients may have
// had an unused connection since it began, which no answer told to leave: it is told now, by
// GOAWAY, and what crosses that is sent again on another connection.
func finish(ctx context.Context, handler *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	_ = handler.Shutdown(ctx) // watches and upgrades do not end, and are cut
}
