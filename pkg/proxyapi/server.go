package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	readHeaderTimeout = 32 * time.Second // kube-apiserver's
	keepAliveTimeout  = 3 * time.Minute
	maxHeaderBytes    = 64 << 10
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
	pool                  *pool
	reachable             *prober
}

// New makes a Server from valid options. It does no I/O.
func New(o *Options) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s := &Server{
		options: *o,
		serving: pki.NewSource(pki.Files{Cert: o.ServerCert, Key: o.ServerKey, TLSProfile: o.TLSProfile}),
		proxy:   pki.NewSource(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.ProxyCACert, TLSProfile: o.TLSProfile}),
		inner:   pki.NewSource(pki.Files{Cert: o.ProxyCert, Key: o.ProxyKey, CA: o.AgentCACert, TLSProfile: o.TLSProfile}),
		metrics: newMetrics(registry),
		health:  health.New(health.Options{Address: address(o.HealthBindAddress, o.HealthPort), Gatherer: registry}),
	}
	proxyTLS := func() *tls.Config {
		host, _, _ := net.SplitHostPort(o.ProxyServer) // Validate looked at it
		return s.proxy.ClientConfig(host)
	}
	s.dialer = &tunnel.Dialer{ProxyServer: o.ProxyServer, TLS: proxyTLS}
	s.pool = newPool(s.dialer.DialContext, s.inner.ClientConfig, s.metrics)
	s.reachable = newProber(o.ProxyServer, proxyTLS)
	return s
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
	watched, err := newWatchedClusters(hub, s.pool.evict)
	if err != nil {
		return err
	}
	listen := address(s.options.ServerBindAddress, s.options.ServerPort)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening on %q: %w", listen, err)
	}
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr().String(), "proxyServer", s.options.ProxyServer)
	return s.run(ctx, listener, watched, watched.run)
}

// run serves on listener. The process's parts go on until everything drained.
func (s *Server) run(ctx context.Context, listener net.Listener, c clusters, background ...func(context.Context) error) error {
	s.health.AddReadyCheck("clusters", c.synced)
	s.health.AddReadyCheck("proxy-server", s.reachable.check)
	s.health.AddReadyCheck("certificate", s.serving.Check)

	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, parts := errgroup.WithContext(parts)
	background = append(background, s.serving.Run, s.proxy.Run, s.inner.Run, s.health.Run, s.reachable.run)
	for _, part := range background {
		group.Go(func() error { return part(parts) })
	}
	group.Go(func() error {
		defer stop()
		return s.serve(ctx, parts, listener, newHandler(c, s.pool, s.metrics))
	})
	err := group.Wait()
	s.pool.close()
	return errors.Join(err, s.dialer.Close())
}

// serve serves until ctx is done and drained, or a part of the process failed.
func (s *Server) serve(ctx, parts context.Context, listener net.Listener, h *handler) error {
	requests, cancelRequests := context.WithCancel(parts)
	defer cancelRequests()
	config := s.serving.ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       keepAliveTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         config,
		BaseContext:       func(net.Listener) context.Context { return requests },
		// Port scans and clients that do not trust us would fill the log.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %q: %w", listener.Addr(), err)
	case <-parts.Done():
	case <-ctx.Done():
		s.drain(ctx, parts, server, h)
	}
	cancelRequests()
	_ = server.Close() // what is left was given its time
	waitFor(&h.inFlight, time.After(cutOff))
	<-failed
	return nil
}

// drain lets requests end.
func (s *Server) drain(ctx, parts context.Context, server *http.Server, h *handler) {
	logger := klog.FromContext(ctx)
	logger.Info("Draining", "minDrainDuration", s.options.MinDrainDuration, "drainTimeout", s.options.DrainTimeout)
	s.health.Drain()
	select {
	case <-time.After(s.options.MinDrainDuration):
	case <-parts.Done():
		return
	}
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
