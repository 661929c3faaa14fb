package certificates

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	probeTimeout  = 5 * time.Second
	probesAtATime = 32
	// probeLife is that of the certificates that are made for probes.
	probeLife = 10 * time.Minute
)

// Probe is the Witness: it asks the agents themselves. Through the tunnel it
// makes a TLS handshake with the agent's own handler, in which the agent has to
// show its certificate and has to accept one of the CA in question. Nobody else
// can answer for a cluster, and no report or timestamp has to be believed; a
// cluster that is away does not answer, so it has not moved.
//
// It may be used by many goroutines at a time.
type Probe struct {
	// Clusters are those that must move.
	Clusters func(ctx context.Context) ([]string, error)
	// ProxyServer is the host:port of the proxy servers' client port.
	ProxyServer string
	// ServerName is what the proxy servers' certificates must name; empty means the
	// host of ProxyServer.
	ServerName string
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu   sync.Mutex
	seen map[string]map[string]time.Time // by test and cluster
}

// Missing tests the clusters that have not passed yet.
func (p *Probe) Missing(ctx context.Context, test Test) (missing []string, last time.Time, err error) {
	clusters, err := p.Clusters(ctx)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("listing clusters: %w", err)
	}
	passed := p.passed(test.ID)
	todo := slices.DeleteFunc(slices.Clone(clusters), func(cluster string) bool { return !passed[cluster].IsZero() })
	if len(todo) > 0 {
		if err := p.run(ctx, test, todo); err != nil {
			return nil, time.Time{}, err
		}
		passed = p.passed(test.ID)
	}
	for _, cluster := range clusters {
		at := passed[cluster]
		if at.IsZero() {
			missing = append(missing, cluster)
		} else if at.After(last) {
			last = at
		}
	}
	slices.Sort(missing)
	return missing, last, nil
}

// passed is a copy of who has passed a test.
func (p *Probe) passed(id string) map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]time.Time{}
	for cluster, at := range p.seen[id] {
		out[cluster] = at
	}
	return out
}

func (p *Probe) run(ctx context.Context, test Test, clusters []string) error {
	now := time.Now()
	if p.Now != nil {
		now = p.Now()
	}
	pair := func(ca *pki.CA) (pki.KeyPair, error) {
		// The role of any client of the tunnel: it lets nobody do more.
		return ca.Issue(pki.Leaf{CommonName: string(identity.RoleClient), Organizations: []string{identity.Organization}, Client: true, Validity: probeLife}, now)
	}
	outer, err := pair(test.Tunnel)
	if err != nil {
		return err
	}
	inner, err := pair(test.Client)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(p.ProxyServer)
	if err != nil {
		return fmt.Errorf("parsing the proxy server's address %q: %w", p.ProxyServer, err)
	}
	if p.ServerName != "" {
		host = p.ServerName
	}
	outerTLS, err := pki.ClientConfig(outer, test.Servers, host)
	if err != nil {
		return err
	}
	dialer := &tunnel.Dialer{ProxyServer: p.ProxyServer, TLS: func() *tls.Config { return outerTLS.Clone() }, DialTimeout: probeTimeout}
	defer dialer.Close()
	var group errgroup.Group
	group.SetLimit(probesAtATime)
	for _, cluster := range clusters {
		group.Go(func() error {
			if probe(ctx, dialer, cluster, inner, test.Agents) == nil {
				p.note(test.ID, cluster, now)
			}
			return nil // that a cluster has not moved is no failure
		})
	}
	return group.Wait()
}

func (p *Probe) note(id, cluster string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]map[string]time.Time{}
	}
	if p.seen[id] == nil {
		p.seen[id] = map[string]time.Time{}
	}
	p.seen[id][cluster] = at
}

func probe(ctx context.Context, dialer *tunnel.Dialer, cluster string, pair pki.KeyPair, agents []byte) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	host := identity.HandlerHost(cluster)
	config, err := pki.ClientConfig(pair, agents, host)
	if err != nil {
		return err
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, identity.HandlerPort))
	if err != nil {
		return err
	}
	return pki.ProveHTTP2(ctx, conn, config)
}
