package apihandler

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

const (
	// maxReads is how many reads at a time have a connection of their own to the
	// kube-apiserver: those of two replicas of the proxy API.
	maxReads = 32
	// readIdle is less than the 90 s after which a kube-apiserver closes an idle
	// connection.
	readIdle = time.Minute
	// apiDialTimeout bounds a dial. client-go waits 30 s, but a read may have waited for a silent
	// connection before, and clients that wait for half a minute shall read why.
	apiDialTimeout = 20 * time.Second
	// pingAfter and pingTimeout detect a kube-apiserver that died silently.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// transports are the ways to the kube-apiserver.
type transports struct {
	anonymous way // with no credential but the request's own
	own       way // with the agent's
}

// way holds the transports for requests with the agent's credential, or for all others.
// Upgrades need HTTP/1.1 and a connection each, reads have a few HTTP/1.1 connections,
// and everything else shares HTTP/2 connections with requests of the same credential.
type way struct {
	shared, separate http.RoundTripper
	readPool         *httprelay.ReadPool
	reads            http.RoundTripper // readPool, with the credential
}

func newTransports(cfg *rest.Config, tcp dial.TCP, target *url.URL) (*transports, error) {
	own := rest.CopyConfig(cfg)
	if own.Dial == nil {
		// Without a dialer of its own, client-go's transport would be that of every client
		// in the process with the same configuration.
		own.Dial = tuned(tcp)
	}
	// Client and kube-apiserver agree on compression.
	own.DisableCompression = true
	own.Impersonate = rest.ImpersonationConfig{}
	anonymous := rest.AnonymousClientConfig(own)
	anonymous.DisableCompression = true
	var t transports
	err := t.anonymous.prepare(anonymous, target)
	if err == nil {
		err = t.own.prepare(own, target)
	}
	if err == nil {
		t.own.shared, err = transportFor(own, useHTTP2)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing connections to the kube-apiserver: %w", err)
	}
	t.anonymous.shared = newByCredential(func() (http.RoundTripper, error) { return transportFor(anonymous, useHTTP2) })
	return &t, nil
}

func useHTTP2(t *http.Transport) {
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: httprelay.Window, SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
}

// prepare makes all but shared.
func (w *way) prepare(cfg *rest.Config, target *url.URL) (err error) {
	upgrades := rest.CopyConfig(cfg)
	upgrades.NextProtos = []string{"http/1.1"}
	// A connection that an upgrade was refused on could be used again, and net/http
	// repeats what breaks on a used connection: an exec by WebSocket is a GET.
	if w.separate, err = transportFor(upgrades, func(t *http.Transport) {
		t.DisableKeepAlives = true
		if target.Scheme == "https" {
			t.DialContext = belowTLS(t.DialContext)
		}
	}); err != nil {
		return err
	}
	w.readPool = &httprelay.ReadPool{
		Most: maxReads, IdleTimeout: readIdle,
		Dial: func(ctx context.Context) (net.Conn, error) { return dialRead(ctx, upgrades, target) },
		Alive: func(conn net.Conn, _ time.Time) bool {
			return httprelay.Acknowledges(func() bool { return dial.IsUnacknowledged(conn) })
		},
	}
	proxyOf := cfg.Proxy
	if proxyOf == nil {
		proxyOf = http.ProxyFromEnvironment
	}
	if proxy, err := proxyOf(&http.Request{URL: target}); proxy != nil || err != nil || target.Scheme != "https" {
		w.readPool.Most = 0 // client-go knows how to get there
	}
	w.reads, err = rest.HTTPWrappersForConfig(upgrades, w.readPool)
	return err
}

// tuned dials connections that notice a peer that is gone.
func tuned(tcp dial.TCP) dialContext {
	dialer := &net.Dialer{Timeout: apiDialTimeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return tcp.Tune(conn), nil
	}
}

// transportFor returns client-go's transport, changed.
func transportFor(cfg *rest.Config, change func(*http.Transport)) (http.RoundTripper, error) {
	wrapped, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	inner := wrapped
	for {
		if t, ok := inner.(*http.Transport); ok {
			t.MaxResponseHeaderBytes = httprelay.MaxHeaderBytes
			change(t)
			return wrapped, nil
		}
		around, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			return nil, fmt.Errorf("client-go's transport is a %T", inner)
		}
		inner = around.WrappedRoundTripper()
	}
}

// belowTLS dials for TLS: a kube-apiserver that is killed must not look like one
// that ended the connection.
func belowTLS(dial dialContext) dialContext {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return connect.BelowTLS(conn), nil
	}
}

type dialContext func(ctx context.Context, network, address string) (net.Conn, error)

// dialRead connects as client-go does. Files with CAs are read each time.
func dialRead(ctx context.Context, cfg *rest.Config, target *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, apiDialTimeout)
	defer cancel()
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = target.Hostname()
	}
	address := target.Host
	if target.Port() == "" {
		address = net.JoinHostPort(target.Hostname(), "443")
	}
	raw, err := cfg.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// isRead reports whether a request is one of those for which the proxy API keeps
// HTTP/1.1 connections (package httprelay). They go on as they came: that is cheaper
// for the kube-apiserver as well.
func isRead(r *http.Request) bool { return r.ProtoMajor == 1 && httprelay.Fits(r) }

// RoundTrip lends the agent's credential to requests of users whom it
// impersonates, and to no others.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	// With --v=7 client-go logs headers, the users' tokens in them.
	r = r.WithContext(klog.NewContext(r.Context(), logr.Discard()))
	w, as := &t.anonymous, func(to http.RoundTripper) http.RoundTripper { return to }
	if config, ok := impersonationOf(r.Context()); ok {
		w, as = &t.own, func(to http.RoundTripper) http.RoundTripper {
			return transport.NewImpersonatingRoundTripper(config, to)
		}
	}
	switch {
	case httprelay.IsUpgrade(r.Header):
		return as(w.separate).RoundTrip(r)
	case isRead(r):
		return w.readPool.RoundTripOr(as(w.reads).RoundTrip, as(w.shared).RoundTrip, r)
	}
	r, err := httprelay.RepeatBody(r)
	if err != nil {
		return nil, err
	}
	return as(w.shared).RoundTrip(r)
}
