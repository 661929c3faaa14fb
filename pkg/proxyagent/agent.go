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

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
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
