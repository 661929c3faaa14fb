package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// fakeClusters admits agents of the clusters in it that have the UID there.
type fakeClusters struct {
	mu      sync.Mutex
	uids    map[string]string
	unknown bool // the hub has not answered yet
}

func (f *fakeClusters) Synced() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unknown {
		return errors.New("not yet")
	}
	return nil
}

func (f *fakeClusters) Admit(a pki.Agent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if uid, ok := f.uids[a.Cluster]; !ok || uid != a.ClusterUID {
		return errors.New("not served")
	}
	return nil
}

func (f *fakeClusters) change(change func(f *fakeClusters)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// oldAgent is an agent that goes on whatever happens: a control session and one
// carrier, with a certificate of its own.
type oldAgent struct {
	*controlAgent
	carrier *carrier.Carrier
}

func agentCertificate(cluster, uid string, life time.Duration) pki.Leaf {
	leaf := pki.Leaf{CommonName: identity.AgentCommonName(cluster), Client: true, Validity: life}
	if uid != "" {
		leaf.OrganizationalUnits = []string{identity.ClusterUnit(uid)}
	}
	return leaf
}

func (h *testHub) oldAgent(t *testing.T, id, cluster, uid string, life time.Duration, secret string) *oldAgent {
	t.Helper()
	config := h.issue(t, h.agentCA, agentCertificate(cluster, uid, life), time.Now())
	a, err := h.connectControlTLS(t, agentSpec{cluster: cluster, id: id, process: secret}, config)
	if err != nil {
		t.Fatal(err)
	}
	before := h.registry.stats()
	old := &oldAgent{controlAgent: a, carrier: h.agentCarrier(t, id, config, secret)}
	eventually(t, "the carrier is there", func() bool {
		now := h.registry.stats()
		return now.Idle+now.InUse > before.Idle+before.InUse
	})
	return old
}

func (h *testHub) agentCarrier(t *testing.T, id string, config *tls.Config, secret string) *carrier.Carrier {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{carrier.ALPN}
	conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := carrier.Dialed(t.Context(), conn, carrier.Hello{Session: id, Features: []string{agentapi.ProcessFeature(secret)}},
		carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(echoOpen)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoOpen accepts a connection that returns what it gets.
func echoOpen(_ context.Context, p *carrier.Pending) {
	if c, err := p.Accept(carrier.Endpoints{}); err == nil {
		_, _ = io.Copy(c, c)
		_ = c.Close()
	}
}

// open opens a connection through the old agent's carrier and proves that it works.
func (h *testHub) open(t *testing.T, cluster string) io.ReadWriteCloser {
	t.Helper()
	conn, err := h.dial(t, h.clientTLS(t), cluster+":443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	exchange(t, conn, "ping", "ping")
	return conn
}

// ended waits until an agent's stream and carrier have ended, and whatever was open
// on the carrier.
func (a *oldAgent) ended(t *testing.T, conn io.Reader) {
	t.Helper()
	for what, done := range map[string]<-chan struct{}{"control session": a.gone, "carrier": a.carrier.Done()} {
		select {
		case <-done:
		case <-time.After(testTimeout):
			t.Fatalf("the %s goes on", what)
		}
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("the open connection goes on: %d bytes", n)
	}
}

// Control sessions, carriers, and what is open on them end with anything that the hub
// takes away, and the old agent does not come back.
func TestAgentsOfClustersThatAreNotServedAreEnded(t *testing.T) {
	for name, change := range map[string]func(*fakeClusters){
		"not served":              func(f *fakeClusters) { delete(f.uids, "cluster1") },
		"another cluster's name":  func(f *fakeClusters) { f.uids["cluster1"] = "uid2" },
		"known only after a sync": func(f *fakeClusters) { f.unknown = false; delete(f.uids, "cluster1") },
	} {
		t.Run(name, func(t *testing.T) {
			clusters := &fakeClusters{uids: map[string]string{"cluster1": "uid1", "cluster2": "uid1"}, unknown: strings.Contains(name, "sync")}
			h := startPreparedHub(t, pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents"), func(s *Server) { s.conns.clusters = clusters })
			old := h.oldAgent(t, "agent", "cluster1", "uid1", time.Hour, "secret")
			bystander := h.oldAgent(t, "agent", "cluster2", "uid1", time.Hour, "secret")
			conn, other := h.open(t, "cluster1"), h.open(t, "cluster2")
			clusters.change(change)
			h.conns.look()
			old.ended(t, conn)
			exchange(t, other, "ping", "ping")
			if err := bystander.carrier.Err(); err != nil {
				t.Errorf("the bystander's carrier: %v", err)
			}
			_, err := h.connectControlTLS(t, agentSpec{cluster: "cluster1"}, h.issue(t, h.agentCA, agentCertificate("cluster1", "uid1", time.Hour), time.Now()))
			if carrier.CodeOf(err) != carrier.Denied {
				t.Errorf("coming back: %v, want %s", err, carrier.Denied)
			}
			if _, body := h.scrape(t, "/metrics"); !strings.Contains(body, `cluster_proxy_server_connections_ended_total{reason="cluster"} 2`) ||
				!strings.Contains(body, `cluster_proxy_server_agents_rejected_total{reason="cluster"} 1`) {
				t.Error("it is not counted")
			}
		})
	}
}

// A certificate's end is the end of what it let in, on both ports.
func TestConnectionsEndWithTheirCertificate(t *testing.T) {
	const life = time.Hour
	var late atomic.Int64
	h := startPreparedHub(t, pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents"), func(s *Server) {
		s.conns.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	})
	old := h.oldAgent(t, "agent", "cluster1", "uid1", life, "secret")
	conn := h.open(t, "cluster1")
	client := h.carrier(t, h.issue(t, h.hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Client: true, Validity: life}, time.Now()))
	late.Store(int64(life - time.Minute))
	h.conns.sweep()
	if err := client.Err(); err != nil || old.carrier.Err() != nil {
		t.Errorf("ended early: %v, %v", err, old.carrier.Err())
	}
	late.Store(int64(life + time.Minute))
	h.conns.look()
	old.ended(t, conn)
	select {
	case <-client.Done():
	case <-time.After(testTimeout):
		t.Error("the client's carrier goes on")
	}
}

// An agent whose CA was dropped is gone, unless the same process has shown another
// certificate. One that stole the old key, and knows the agent's name, has not.
func TestAgentsOfADroppedCA(t *testing.T) {
	h := startHub(t)
	thief := h.oldAgent(t, "agent", "cluster1", "uid1", time.Hour, "guessed")
	stolen := h.open(t, "cluster1")
	honest := h.oldAgent(t, "agent", "cluster1", "uid1", time.Hour, "secret")
	inUse := h.open(t, "cluster1") // the thief's only carrier is in use

	next := pkitest.NewCA(t, "next")
	h.trust(t, h.agentCA, next)
	// A certificate that is newer by the clock of certificates, which has seconds.
	renewed := h.issue(t, next, agentCertificate("cluster1", "uid1", time.Hour), time.Now().Add(2*time.Second))
	fresh := h.agentCarrier(t, "agent", renewed, "secret")
	eventually(t, "the new carrier is there", func() bool { return h.registry.stats().Idle+h.registry.stats().InUse == 3 })
	h.trust(t, next)
	thief.ended(t, stolen)
	exchange(t, inUse, "ping", "ping")
	_ = inUse.Close()
	select {
	case <-honest.carrier.Done(): // replaced, once it was idle
	case <-time.After(testTimeout):
		t.Error("the carrier with the old certificate is used again")
	}
	if err := fresh.Err(); err != nil {
		t.Errorf("the new carrier: %v", err)
	}
	select {
	case <-honest.gone:
		t.Error("the control session of the agent with a new certificate was ended")
	default:
	}
}

// trust changes the bundle that agents are verified with.
func (h *testHub) trust(t *testing.T, cas ...*pki.CA) {
	t.Helper()
	var bundle []byte
	for _, ca := range cas {
		bundle = append(bundle, ca.CertPEM()...)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "agent-ca.crt"), bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.agentSource.Load(); err != nil {
		t.Fatal(err)
	}
}

// issue makes the TLS configuration of a peer.
func (h *testHub) issue(t *testing.T, ca *pki.CA, leaf pki.Leaf, at time.Time) *tls.Config {
	t.Helper()
	pair, err := ca.Issue(leaf, at)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pki.ClientConfig(pair, h.hubCA.CertPEM(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestCarrierThatComesLate has a handshake with the old certificate end after one with the new
// one, as when both waited for their turn: what the agent has open on it goes on when the old CA
// is dropped.
func TestCarrierThatComesLate(t *testing.T) {
	h := startHub(t)
	certificate := agentCertificate("cluster1", "uid1", time.Hour)
	old := h.issue(t, h.agentCA, certificate, time.Now())
	next := pkitest.NewCA(t, "next")
	h.trust(t, h.agentCA, next)
	renewed := h.issue(t, next, certificate, time.Now().Add(2*time.Second))
	if _, err := h.connectControlTLS(t, agentSpec{cluster: "cluster1", process: "secret"}, renewed); err != nil {
		t.Fatal(err)
	}
	h.agentCarrier(t, "agent", old, "secret")
	eventually(t, "the carrier is there", func() bool { return h.registry.stats().Idle == 1 })
	inUse := h.open(t, "cluster1")
	h.trust(t, next)
	h.conns.sweep()
	exchange(t, inUse, "ping", "ping")
}

// TestPeersAfterADroppedCA drops the hub CA of which servers had their certificates when they
// met: they reach each other's clusters by the new ones at once, and what is open goes on.
func TestPeersAfterADroppedCA(t *testing.T) {
	hubs := startPeers(t, 2)
	hubs[1].carrierAgent(t, agentSpec{cluster: "cluster1", name: "agent"}, 3)
	dial := func() (*carrier.Conn, error) {
		return hubs[0].Server.open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443", Timeout: testTimeout})
	}
	inUse, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	next := pkitest.NewCA(t, "next")
	for _, rotate := range []func(dir string){
		func(dir string) { writeFile(t, dir, "server-ca.crt", hubs[0].hubCA.CertPEM(), next.CertPEM()) },
		func(dir string) {
			pair, err := next.Issue(pki.Leaf{CommonName: servingLeaf.CommonName, IPs: servingLeaf.IPs, Server: true, Client: true, Validity: time.Hour}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, dir, "server.crt", pair.CertPEM)
			writeFile(t, dir, "server.key", pair.KeyPEM)
		},
		func(dir string) { writeFile(t, dir, "server-ca.crt", next.CertPEM()) },
	} {
		for _, h := range hubs {
			rotate(h.dir)
		}
		for _, h := range hubs {
			if err := h.clientSource.Load(); err != nil {
				t.Fatal(err)
			}
		}
	}
	hubs[1].conns.sweep()
	eventually(t, "what is idle with an old certificate has ended", func() bool {
		p := hubs[1].conns
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.conns {
			if _, err := p.check(c); err != nil && c.carrier != nil && c.carrier.Resting() {
				return false
			}
		}
		return true
	})
	conn, err := dial()
	if err != nil {
		t.Fatalf("a dial through the peer: %v", err)
	}
	_ = conn.Close()
	exchange(t, inUse, "ping", "agent:ping")
	_ = inUse.Close()
}

func writeFile(t *testing.T, dir, name string, parts ...[]byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), slices.Concat(parts...), 0o600); err != nil {
		t.Fatal(err)
	}
}
