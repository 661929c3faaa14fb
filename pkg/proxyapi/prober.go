package proxyapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/staledial"
)

const (
	probeInterval = 10 * time.Second
	probeTimeout  = 5 * time.Second
)

// prober says in a metric and in the log whether the proxy server can be
// reached, without a dial to any cluster. Readiness does not depend on it: a
// proxy API that is taken out of its Service cannot say what is wrong, and takes
// the APIService with it, without which namespaces of the hub are not deleted.
type prober struct {
	address   string
	tlsConfig func() *tls.Config
	reachable prometheus.Gauge

	dialer staledial.Dialer
}

// run keeps trying until ctx is done.
func (p *prober) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for failing := false; ; {
		err := p.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if failing {
				logger.Info("The proxy server can be reached again")
			}
			p.reachable.Set(1)
		default:
			if !failing {
				logger.Error(err, "The proxy server cannot be reached; requests to clusters are answered with 503")
			}
			p.reachable.Set(0)
		}
		failing = err != nil
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
