package certificates

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	checkTimeout  = 5 * time.Second
	checksAtATime = 32
	// A look at thousands asks sampleSize of them, and as many more while one in sampleShare has moved.
	sampleSize  = 64
	sampleShare = 4
	// checkLife is that of the certificates that are made for checks.
	checkLife = 10 * time.Minute
)

// AgentChecker is a RotationChecker that asks the agents themselves. Through the tunnel it
// makes a TLS handshake with the agent's own handler, in which the agent has to
// show its certificate and has to accept one of the CA in question. Nothing else
// can answer for a cluster, and no report or timestamp has to be believed; a
// cluster that is away does not answer, so it has not moved.
//
// Clusters get what a rotation waits for some a second, and some are away for days. To
// ask all that are missing each time would take more of everybody's processors than to
// move them: an agent answers with a handshake for the question, and one for its next
// session. So they are asked in a random order, 64 of them, and 64 more while a quarter of
// those has moved. A look at a fleet of which few have moved, or many are away, costs 64
// questions.
//
// It is safe for concurrent use.
type AgentChecker struct {
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
	seen map[string]map[string]time.Time // by check and cluster
}

// Missing checks clusters that have not passed yet: all of up to 64, and of more while
// many of them pass.
func (a *AgentChecker) Missing(ctx context.Context, check Check) (missing []string, last time.Time, err error) {
	clusters, err := a.Clusters(ctx)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("listing clusters: %w", err)
	}
	passed := a.passed(check.ID)
	todo := slices.DeleteFunc(slices.Clone(clusters), func(cluster string) bool { return !passed[cluster].IsZero() })
	if len(todo) > 0 {
		if err := a.run(ctx, check, todo); err != nil {
			return nil, time.Time{}, err
		}
		passed = a.passed(check.ID)
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

// passed returns which clusters have passed a check, and when.
func (a *AgentChecker) passed(id string) map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]time.Time{}
	for cluster, at := range a.seen[id] {
		out[cluster] = at
	}
	return out
}

// run asks clusters, whose order it changes.
func (a *AgentChecker) run(ctx context.Context, check Check, clusters []string) error {
	now := time.Now()
	if a.Now != nil {
		now = a.Now()
	}
	pair := func(ca *pki.CA) (pki.KeyPair, error) {
		// The role of any client of the tunnel: it grants nothing more.
		return ca.Issue(pki.Leaf{CommonName: string(identity.RoleClient), Organizations: []string{identity.Organization}, Client: true, Validity: checkLife}, now)
	}
	outer, err := pair(check.Tunnel)
	if err != nil {
		return err
	}
	inner, err := pair(check.Client)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(a.ProxyServer)
	if err != nil {
		return fmt.Errorf("parsing the proxy server's address %q: %w", a.ProxyServer, err)
	}
	if a.ServerName != "" {
		host = a.ServerName
	}
	outerTLS, err := pki.ClientConfig(outer, check.Servers, host)
	if err != nil {
		return err
	}
	dialer := &tunnel.Dialer{ProxyServer: a.ProxyServer, TLS: func() *tls.Config { return outerTLS.Clone() }, DialTimeout: checkTimeout}
	defer dialer.Close()
	rand.Shuffle(len(clusters), func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
	for sample := range slices.Chunk(clusters, sampleSize) {
		var group errgroup.Group
		group.SetLimit(checksAtATime)
		var moved atomic.Int32
		for _, cluster := range sample {
			group.Go(func() error {
				if checkAgent(ctx, dialer, cluster, inner, check.Agents) == nil {
					a.note(check.ID, cluster, now)
					moved.Add(1)
				}
				return nil
			})
		}
		_ = group.Wait() // that a cluster has not moved is no failure
		if int(moved.Load()) < len(sample)/sampleShare {
			return nil
		}
	}
	return nil
}

func (a *AgentChecker) note(id, cluster string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]map[string]time.Time{}
	}
	if a.seen[id] == nil {
		a.seen[id] = map[string]time.Time{}
	}
	a.seen[id][cluster] = at
}

func checkAgent(ctx context.Context, dialer *tunnel.Dialer, cluster string, pair pki.KeyPair, agents []byte) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
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
