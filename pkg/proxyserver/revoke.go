package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// recheckInterval is how often connections are checked again. Changes of clusters on
// the hub do not wait for it.
const recheckInterval = 2 * time.Second

// served says which clusters may be served, and whose agent a certificate
// belongs to.
type served interface {
	Synced() error
	Admit(agent pki.Agent) error
}

// peerConns are the TLS connections on both ports. It ends those whose peer would
// not be let in any more, with everything on them: an agent's control session and
// its carriers are such connections, whatever the agent does.
//
// TLS authenticates a connection once, so the server checks again whether the peer may
// still connect (revoke.go): every two seconds, and at once when the hub reports a
// change. A connection that fails the check is closed as a whole, with the control
// session, the carrier and whatever else is on it, whatever the peer does. Ends are
// counted in cluster_proxy_server_connections_ended_total and logged.
//
//   - The cluster (--watch-managed-clusters, which the addon manager sets): agents are
//     served while package hubaccess admits them. This needs a service account with
//     list and watch on ManagedClusters and ManagedClusterAddOns, for which the pod
//     mounts a token. A stolen token of it reads names of clusters, which the pod sees
//     in the agents' certificates anyway; in return a cluster that is no longer
//     accepted loses its tunnel within seconds. A ConfigMap instead of the watch would
//     take a minute to be projected. Before the hub's first answer certificates alone
//     decide: a proxy server that starts during an outage of the hub's kube-apiserver
//     still serves. Metric cluster_proxy_server_clusters_synced is 0 until then. In a
//     later outage the hub's last answer holds.
//   - The peer's certificate: a connection ends with it, on both ports.
//   - The agent CA: when it leaves the bundle, connections of agents whose certificate
//     it signed end. An agent that has renewed its certificate loses nothing, idle or
//     not: it dials a carrier at once, which shows the new certificate, and this counts
//     for all connections of the same agent process. Each process makes a secret when
//     it starts and sends it in HELLO; nothing else would distinguish it from an attacker
//     who has stolen the
//     old key and knows the agent's ID. Carriers with the old certificate are replaced
//     when they are idle.
//   - The hub CA: clients whose certificate it signed open nothing new, and their
//     carriers are closed as soon as they are idle. Their open
//     connections end with their certificate at the latest. A rotation must not drop
//     it, and these clients are on the hub.
//
// A bundle reaches a pod when the kubelet projects the changed Secret, which may
// take a minute; the times above begin then.
type peerConns struct {
	clusters served // nil if the hub is not asked
	metrics  *serverMetrics
	logger   klog.Logger
	changed  chan struct{} // the hub said something new
	now      func() time.Time

	mu        sync.Mutex
	conns     map[*tls.Conn]*peerConn
	processes map[processKey]map[*peerConn]struct{}
}

type peerConn struct {
	raw         net.Conn
	source      *pki.Reloader
	certificate *pki.Certificate
	agent       *pki.Agent       // nil for a client
	process     processKey       // zero until it is known
	carrier     *carrier.Carrier // nil if it is none
	drained     bool             // the carrier opens nothing new, and ends when it is idle
	ended       bool             // it was closed here, and its owner has not noticed yet
}

// processKey identifies an agent process. Its secret alone would suffice if agents
// could not invent one.
type processKey struct{ cluster, secret string }

func newPeerConns(m *serverMetrics) *peerConns {
	return &peerConns{metrics: m, changed: make(chan struct{}, 1), now: time.Now, conns: map[*tls.Conn]*peerConn{}, processes: map[processKey]map[*peerConn]struct{}{}}
}

// add registers a connection whose handshake is complete. remove must be called
// when it is closed. A peer without a certificate that could be taken away is not
// registered, and is refused where it is served.
func (p *peerConns) add(conn *tls.Conn, raw net.Conn, source *pki.Reloader, ofAgents bool) (remove func()) {
	state := conn.ConnectionState()
	certificate, err := pki.PeerCertificate(state)
	if err != nil {
		return func() {}
	}
	c := &peerConn{raw: raw, source: source, certificate: certificate}
	if ofAgents {
		if agent, err := pki.PeerAgent(state); err == nil {
			c.agent = &agent
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = c
	return func() { p.remove(conn, c) }
}

func (p *peerConns) remove(conn *tls.Conn, c *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[conn] == nil { // it was closed before
		return
	}
	delete(p.conns, conn)
	delete(p.processes[c.process], c)
	if len(p.processes[c.process]) == 0 {
		delete(p.processes, c.process)
	}
}

// carries notes the carrier that a connection became.
func (p *peerConns) carries(conn *tls.Conn, made *carrier.Carrier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[conn]; c != nil {
		c.carrier = made
	}
}

// belongs notes the agent process that a connection is from. If it shows a newer
// certificate than other connections of that process, they count as having it too
// from now on, and their carriers are replaced when they are idle: so a certificate
// or CA can be taken away without a loss for agents that have renewed theirs. If it
// shows an older one, it counts as having theirs.
func (p *peerConns) belongs(conn *tls.Conn, secret string) {
	p.mu.Lock()
	c := p.conns[conn]
	if c == nil || c.agent == nil || secret == "" || c.process.secret != "" {
		p.mu.Unlock()
		return
	}
	c.process = processKey{c.agent.Cluster, secret}
	if p.processes[c.process] == nil {
		p.processes[c.process] = map[*peerConn]struct{}{}
	}
	var old []*carrier.Carrier
	for other := range p.processes[c.process] {
		if other.certificate.NewerThan(c.certificate) { // whose handshake was overtaken
			c.certificate, c.agent = other.certificate, other.agent
		}
		if !c.certificate.NewerThan(other.certificate) {
			continue
		}
		other.certificate, other.agent = c.certificate, c.agent
		// A control session stays: with it the agent would be gone for a while.
		if other.carrier != nil && !other.carrier.InSession() {
			old = append(old, other.carrier)
		}
	}
	p.processes[c.process][c] = struct{}{}
	p.mu.Unlock()
	for _, c := range old {
		c.Drain()
	}
}

// admit returns an error if an agent's cluster is not served. Before the hub's first
// answer the certificate alone decides.
func (p *peerConns) admit(agent pki.Agent) error {
	if p.clusters == nil || p.clusters.Synced() != nil {
		return nil
	}
	return p.clusters.Admit(agent)
}

// check returns why a connection must end, or nil.
func (p *peerConns) check(c *peerConn) (reason string, err error) {
	switch err := c.source.Recheck(c.certificate, p.now()); {
	case errors.Is(err, pki.ErrExpired):
		return endedExpired, err
	case err != nil:
		return endedCA, err
	case c.agent == nil:
		return "", nil
	}
	return endedCluster, p.admit(*c.agent)
}

// run checks all connections regularly, and when the hub reports a change.
func (p *peerConns) run(ctx context.Context) error {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-p.changed:
		}
		p.sweep()
	}
}

// look has all connections checked soon.
func (p *peerConns) look() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// ending is what the log says about connections that were ended together.
type ending struct {
	cluster, reason, message string
}

// sweep ends the connections that fail check. A client whose CA left the bundle is
// treated more gently: its carriers open nothing new, and its connections end with its
// certificate at the latest. A certificate of the old hub CA cannot be used to pose as
// a cluster, and a rotation of the hub CA must not drop anything.
func (p *peerConns) sweep() {
	counts := map[ending]int{}
	var end []net.Conn
	var drain []*carrier.Carrier
	p.mu.Lock()
	for _, c := range p.conns {
		if c.ended {
			continue
		}
		reason, err := p.check(c)
		if err == nil {
			continue
		}
		if c.agent == nil && reason == endedCA {
			if c.carrier != nil && !c.drained {
				c.drained = true
				drain = append(drain, c.carrier)
			}
			continue
		}
		e := ending{reason: reason, message: err.Error()}
		if c.agent != nil {
			e.cluster = c.agent.Cluster
		}
		counts[e]++
		c.ended = true
		end = append(end, c.raw)
	}
	p.mu.Unlock()
	for e, n := range counts { // before the peers notice
		p.metrics.ended.WithLabelValues(e.reason).Add(float64(n))
		p.logger.Info("Connections ended", "cluster", e.cluster, "reason", e.reason, "message", e.message, "connections", n)
	}
	for _, c := range drain {
		c.Drain()
		// A peer would use it again: it takes the refusal for that of a server that stops.
		go func() {
			_ = c.WaitIdle(context.Background())
			_ = c.Close()
		}()
	}
	for _, raw := range end {
		_ = raw.Close()
	}
}
