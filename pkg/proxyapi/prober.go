package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/staledial"
)

const (
	probeInterval = 10 * time.Second
	probeTimeout  = 5 * time.Second
)

// prober knows whether the proxy server can be reached, without a dial to any
// cluster.
type prober struct {
	address   string
	tlsConfig func() *tls.Config

	dialer staledial.Dialer

	mu   sync.Mutex
	last error
}

func newProber(address string, tlsConfig func() *tls.Config) *prober {
	return &prober{address: address, tlsConfig: tlsConfig, last: errors.New("not tried yet")}
}

// check is the last attempt's error.
func (p *prober) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// run keeps trying until ctx is done.
func (p *prober) run(ctx context.Context) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		err := p.probe(ctx)
		p.mu.Lock()
		p.last = err
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (p *prober) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	config := p.tlsConfig()
	config.NextProtos = []string{"h2"}
	raw, err := p.dialer.DialContext(ctx, p.address)
	if err != nil {
		return fmt.Errorf("connecting to proxy server %q: %w", p.address, err)
	}
	defer raw.Close()
	if err := tls.Client(raw, config).HandshakeContext(ctx); err != nil {
		return fmt.Errorf("connecting to proxy server %q: %w", p.address, err)
	}
	return nil
}
