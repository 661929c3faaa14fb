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
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
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
	k := o.Konnectivity
	registry := prometheus.NewRegistry()
	metrics := newAgentMetrics(registry)
	a := &Agent{
		options:  o,
		registry: registry, metrics: metrics, memory: memlimit.New(registry, "proxy agent", "resourceRequirements in the AddOnDeploymentConfig of that cluster's addon"),
		handshakes: handshakes{failures: metrics.handshakeFailures},
		conns:      newConnDrainer(),
		source:     pki.NewReloader(pki.Files{Cert: k.AgentCert, Key: k.AgentKey, CA: k.CaCert, TLSProfile: o.TLSProfile}),
		health: health.New(health.Options{
			Address:  net.JoinHostPort(k.HealthServerHost, strconv.Itoa(k.HealthServerPort)),
			Gatherer: prometheus.Gatherers{prometheus.DefaultGatherer, registry},
		}),
	}
	a.source.Changed = func() {
		if servers := a.conns.servers.Load(); servers != nil {
			servers.renew()
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
	// What serves connections outlives ctx by the drain.
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
		if cluster, err = flags.RESTConfig("kubeconfig", o.Konnectivity.KubeconfigPath); err != nil {
			return nil, err
		}
		if decide, handler, err = a.startHandler(serving, group, cluster); err != nil {
			return nil, err
		}
	} else {
		klog.FromContext(ctx).Info("No --cluster-name: this is a plain konnectivity agent, which dials whatever it is asked for")
	}
	if o.EnablePortForwardProxy {
		if err := a.startPortForward(serving, group); err != nil {
			return nil, err
		}
	}
	tunnels, err := a.startTunnels(ctx, serving, decide, handler)
	if err != nil {
		return nil, err
	}
	if cluster != nil && o.AddonLeaseNamespace != "" {
		client, err := kubernetes.NewForConfig(cluster)
		if err != nil {
			return nil, fmt.Errorf("preparing a client of the managed cluster: %w", err)
		}
		lease := addonLease{
			leases:    client.CoordinationV1().Leases(o.AddonLeaseNamespace),
			connected: func() bool { return tunnels.connected() > 0 },
		}
		group.Go(func() error { return lease.run(ctx) })
	}
	return tunnels.connected, nil
}

// startTunnels starts to look for proxy servers, with konnectivity's agent for those that
// speak its protocol only. It drains when ctx ends, and stops with serving.
func (a *Agent) startTunnels(ctx, serving context.Context, decide decision, handler *connListener) (*servers, error) {
	k := a.options.Konnectivity
	counter, err := a.leaseCounter(serving)
	if err != nil {
		return nil, err
	}
	o := a.options
	carriers := &carrierDialer{
		address:    net.JoinHostPort(k.ProxyServerHost, strconv.Itoa(k.ProxyServerPort)),
		serverName: k.ProxyServerHost, session: k.AgentID, identifiers: k.AgentIdentifiers, process: rand.Text(), source: a.source, decide: decide, handler: handler,
		tcp:        o.tcp(),
		handshakes: &a.handshakes, protocols: k.AlpnProtos, pingAfter: k.KeepaliveTime,
		handshakeTimeout: o.HandshakeTimeout, targetTimeout: o.TargetDialTimeout,
		memory: a.memory, denied: a.metrics.dialsRejected,
	}
	servers := newServers(ctx, carriers, pool.Config{MinIdle: o.IdleCarriers, Max: o.MaxCarriers}, dial.Jitter(k.SyncInterval, k.SyncIntervalCap))
	context.AfterFunc(serving, servers.close)
	a.conns.servers.Store(servers)
	config := k.ClientSetConfig(
		grpc.WithStreamInterceptor(controlSessions(ctx, decide, servers)),
		grpc.WithContextDialer(servers.dialStream),
		grpc.WithSharedWriteBuffer(true), grpc.WithReadBufferSize(0), // it is mostly silent, and TLS has a buffer
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * o.HandshakeTimeout}),
		grpc.WithTransportCredentials(reloadingTLS{source: a.source, serverName: k.ProxyServerHost, nextProtos: k.AlpnProtos, timeout: o.HandshakeTimeout, handshakes: &a.handshakes}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: k.KeepaliveTime, Timeout: 10 * time.Second, PermitWithoutStream: true}),
	)
	// The pauses between attempts are the counter's; this is how often the agent
	// looks whether it has all servers.
	config.SyncIntervalCap = config.SyncInterval
	tunnels := config.NewAgentClientSet(ctx.Done(), serving.Done())
	recheck := time.Hour // servers say when their number changes
	if counter != nil {
		recheck = k.SyncInterval
	}
	tunnels.SetServerCounter(controlFirst{
		ServerCounter: servers.counter(agent.NewAggregateServerCounter(counter, servers, k.ServerCountSource)),
		servers:       servers, recheck: recheck,
	})
	tunnels.Serve()
	return servers, nil
}

// startHandler listens for the proxy API's requests and says what may be
// dialed, the handler included. Connections from konnectivity's streams come to
// the listener, those from carriers by the connListener.
func (a *Agent) startHandler(serving context.Context, group *errgroup.Group, cluster *rest.Config) (decision, *connListener, error) {
	o := a.options
	apiServer, err := apiServerAddress(cluster)
	if err != nil {
		return nil, nil, err
	}
	services, running, err := a.services(cluster)
	if err != nil {
		return nil, nil, err
	}
	for _, run := range running {
		group.Go(func() error { return run(serving) })
	}
	access := a.startAccess(serving, group)
	shown, err := a.shownMetrics()
	if err != nil {
		return nil, nil, err
	}
	server, err := apihandler.NewServer(cluster, o.tcp(), a.source, services, access, apihandler.Metrics{Registry: a.registry, Agent: shown})
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
	address := net.JoinHostPort(o.Konnectivity.ProxyServerHost, strconv.Itoa(o.Konnectivity.ProxyServerPort))
	var lc net.ListenConfig
	listener, err := lc.Listen(serving, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for connections to forward on %q: %w", address, err)
	}
	forwarder := &portForwarder{hub: hub, pods: client, namespace: o.ProxyServerNamespace, timeout: dialTimeout}
	group.Go(func() error { return forwarder.run(serving, listener) })
	return nil
}

// apiServerAddress is the host:port of the kube-apiserver.
func apiServerAddress(config *rest.Config) (string, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("parsing the address of the kube-apiserver %q: %w", config.Host, err)
	}
	if base.Port() != "" {
		return base.Host, nil
	}
	return net.JoinHostPort(base.Hostname(), defaultPort(base)), nil
}

func defaultPort(u *url.URL) string {
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}
