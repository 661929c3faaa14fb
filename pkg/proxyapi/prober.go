package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	probeInterval = 10 * time.Second
	probeTimeout  = 5 * time.Second
)

const formerInterval = 250 * time.Millisecond

// prober says in a metric and in the log whether the proxy server can be
// reached, without a dial to any cluster. Readiness does not depend on it: a
// proxy API that is taken out of its Service cannot say what is wrong, and takes
// the APIService with it, without which namespaces of the hub are not deleted.
//
// One thing does keep a new proxy API from being ready: a proxy server that
// answers, and is upstream's, as long as there is none of this release at next.
// Upstream's user servers serve its clients until the addon manager has that name
// lead somewhere, and then all clients.
type prober struct {
	address, next string // next may be empty
	tlsConfig     func() *tls.Config
	reachable     prometheus.Gauge

	dialer dial.StaleDialer
	// probed is closed after the first probe. own says that a proxy server of this
	// release has answered at address; onNext, that upstream's answers there and one
	// of this release at next; and former, that upstream's is all there is.
	probed              chan struct{}
	own, onNext, former atomic.Bool
	// failing is when the first of the probes that failed since was made, in nanoseconds since
	// 1970; 0 if the last one did not.
	failing atomic.Int64
}

// check is an error while upstream's proxy servers answer, until once one of this
// release did.
func (p *prober) check() error {
	select {
	case <-p.probed:
	default:
		return errNotProbed
	}
	if p.former.Load() {
		return errFormer
	}
	return nil
}

// server is the host:port of the proxy servers to use.
func (p *prober) server() string {
	if p.onNext.Load() {
		return p.next
	}
	return p.address
}

var (
	errNotProbed = errors.New("the proxy server was not asked yet")
	errFormer    = errors.New("the proxy server is one of OCM's own cluster-proxy; waiting for the addon manager to lead clients over")
)

// expecting is the error of a dial: one that found no proxy server, for longer than a restart
// takes, is an agentclient.AwayError.
func (p *prober) expecting(err error) error {
	if tunnel.CodeOf(err) != tunnel.NoProxyServer {
		return err
	}
	failing := p.failing.Load()
	if failing == 0 || time.Since(time.Unix(0, failing)) < agentclient.AwayAfter {
		return err
	}
	return &agentclient.AwayError{Err: err}
}

// run keeps trying until ctx is done.
func (p *prober) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	probed := sync.OnceFunc(func() { close(p.probed) })
	for connected := false; ; {
		err := p.look(ctx)
		switch {
		case ctx.Err() != nil:
			probed()
			return nil
		case err == nil:
			if !connected {
				logger.Info("Connected to the proxy server")
			}
			connected = true
			p.failing.Store(0)
			p.reachable.Set(1)
		default:
			if p.failing.CompareAndSwap(0, time.Now().UnixNano()) {
				logger.Error(err, "The proxy server cannot be reached; requests to clusters are answered with 503")
			}
			connected = false
			p.reachable.Set(0)
		}
		probed()
		pause := probeInterval
		if p.former.Load() || p.onNext.Load() {
			pause = formerInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// look finds out which proxy servers answer. Its error is that of address.
func (p *prober) look(ctx context.Context) error {
	own, err := p.probe(ctx, p.address)
	if own {
		p.own.Store(true)
	}
	upstreams := err == nil && !p.own.Load()
	if upstreams && p.next != "" && !p.onNext.Load() {
		ours, nextErr := p.probe(ctx, p.next)
		p.onNext.Store(nextErr == nil && ours)
	}
	if p.own.Load() {
		p.onNext.Store(false)
	}
	p.former.Store(upstreams && !p.onNext.Load())
	return err
}

// probe reports whether the proxy server at address speaks carriers, as upstream's do
// not.
func (p *prober) probe(ctx context.Context, address string) (own bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	config := p.tlsConfig()
	config.NextProtos = []string{"h2"}
	if !p.own.Load() {
		config.NextProtos = []string{carrier.ALPN, "h2"}
	}
	raw, err := p.dialer.DialContext(ctx, address)
	if err != nil {
		return false, fmt.Errorf("connecting to proxy server %q: %w", address, err)
	}
	defer raw.Close()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return false, fmt.Errorf("connecting to proxy server %q: %w", address, err)
	}
	return conn.ConnectionState().NegotiatedProtocol == carrier.ALPN, nil
}
