package fleetindexer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// Indexer is one process of the fleet index.
type Indexer struct {
	options Options
	// proxy, towards the proxy server; inner, towards agents.
	proxy, inner *pki.Reloader
	metrics      *metrics
	health       *health.Server
}

// New checks the options and does no I/O.
func New(o *Options) (*Indexer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	return &Indexer{
		options: *o,
		proxy:   pki.NewReloader(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.ProxyCACert, TLSProfile: o.TLSProfile}),
		inner:   pki.NewReloader(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.AgentCACert, TLSProfile: o.TLSProfile}),
		metrics: newMetrics(registry),
		health: health.New(health.Options{Address: net.JoinHostPort(o.HealthBindAddress, strconv.Itoa(o.HealthPort)),
			Gatherer: prometheus.Gatherers{prometheus.DefaultGatherer, registry}}),
	}, nil
}

// Run follows clusters until ctx is done and what is known of them is written.
func (x *Indexer) Run(ctx context.Context) error {
	for _, source := range []*pki.Reloader{x.proxy, x.inner} {
		if err := source.Load(); err != nil {
			return err
		}
	}
	hub, err := flags.RESTConfig("kubeconfig", x.options.Kubeconfig)
	if err != nil {
		return err
	}
	watched, err := clusters.New(hub)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return fmt.Errorf("making a client for the hub: %w", err)
	}
	store, err := fleetindex.Open(ctx, fleetindex.Options{Location: x.options.Store, MaxRows: int64(x.options.MaxRows)})
	if err != nil {
		return err
	}
	dialer := x.dialer()
	agents := agentclient.New(agentclient.Options{Dial: dialer.DialContext, TLS: x.inner.ClientConfig, Admission: watched, Metrics: x.metrics.agents()})
	watched.OnGone(agents.Evict)
	everything := newShared(tunnelAgents{agents}, store, x.options.indexed(), x.metrics)
	rights := newRights(tunnelAgents{agents}, watched.UID, time.Duration(x.options.StaleRightsSeconds)*time.Second, everything)
	port := newAnswers(everything, watched, rights)
	listener, err := net.Listen("tcp", net.JoinHostPort(x.options.BindAddress, strconv.Itoa(x.options.Port)))
	if err != nil {
		return errors.Join(fmt.Errorf("listening for the proxy API: %w", err), store.Close())
	}
	f := &fleet{shared: everything, hub: watched,
		owns: func(string) bool { return true }, following: map[string]*followed{}}
	background := []func(context.Context) error{watched.Run, x.proxy.Run, x.inner.Run, x.health.Run, rights.run,
		func(ctx context.Context) error { return port.serve(ctx, x.proxy, listener) },
		func(ctx context.Context) error {
			return agents.Recheck(ctx, func(c *pki.Certificate) error { return x.inner.Recheck(c, time.Now()) })
		}}
	if x.options.isShared() {
		others := newReplicas(client.CoordinationV1().Leases(x.options.Namespace), x.options.Replica)
		f.owns = others.owns
		background = append(background, others.run)
	}
	x.health.AddReadyCheck("clusters", watched.Synced)
	klog.FromContext(ctx).Info("Indexing", "resources", x.options.Resources, "proxyServer", x.options.ProxyServer)
	err = x.run(ctx, f, background)
	agents.Close()
	return errors.Join(err, dialer.Close(), store.Close())
}

// dialer returns what dials through the tunnel.
func (x *Indexer) dialer() *tunnel.Dialer {
	host, _, _ := net.SplitHostPort(x.options.ProxyServer) // Validate looked at it
	return &tunnel.Dialer{ProxyServer: x.options.ProxyServer, TLS: func() *tls.Config { return x.proxy.ClientConfig(host) }}
}

// run follows clusters until ctx is done. Background work goes on until that has ended.
func (x *Indexer) run(ctx context.Context, f *fleet, background []func(context.Context) error) error {
	drain := context.AfterFunc(ctx, x.health.Drain)
	defer drain()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, running := errgroup.WithContext(running)
	for _, run := range background {
		group.Go(func() error { return run(running) })
	}
	group.Go(func() error {
		defer stop()
		following, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(running, cancel)()
		return f.run(following)
	})
	return group.Wait()
}
