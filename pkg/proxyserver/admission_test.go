package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// controlAgent is an agent whose control session is on a carrier.
type controlAgent struct {
	*carrier.Session
	got  chan carrier.Control // but for pings
	gone chan struct{}
	err  error // set before gone is closed
}

// connectControl makes a control carrier with a certificate of the spec's cluster.
func (h *testHub) connectControl(t *testing.T, spec agentSpec) (*controlAgent, error) {
	t.Helper()
	if spec.ca == nil {
		spec.ca = h.agentCA
	}
	return h.connectControlTLS(t, spec, h.tlsFor(t, spec.ca, identity.AgentCommonName(spec.cluster)))
}

func (h *testHub) connectControlTLS(t *testing.T, spec agentSpec, config *tls.Config) (*controlAgent, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), carrierTLS(config))
	if err != nil {
		return nil, err
	}
	return newControlAgent(t, conn, spec)
}

func carrierTLS(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{carrier.ALPN}
	return config
}

func newControlAgent(t *testing.T, conn *tls.Conn, spec agentSpec) (*controlAgent, error) {
	t.Helper()
	if spec.id == "" {
		spec.id = "agent"
	}
	if spec.identifiers == "" {
		spec.identifiers = identity.Identifiers(identity.Hosts(spec.cluster, identity.DefaultAgentNamespace))
	}
	hello := carrier.Hello{Session: spec.id, Identifiers: spec.identifiers, Features: []string{agentapi.ProcessFeature(spec.process)}}
	if spec.meantFor != "" {
		hello.Features = append(hello.Features, agentapi.ServerFeature(spec.meantFor))
	}
	config := carrier.SessionConfig{}
	if spec.opens {
		config.Carrier = &carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(echoOpen)}
	}
	session, err := carrier.DialSession(t.Context(), conn, hello, config)
	if err != nil {
		return nil, err
	}
	a := &controlAgent{Session: session, got: make(chan carrier.Control, 64), gone: make(chan struct{})}
	session.Start(func(m carrier.Control) { a.got <- m }, func(err error) {
		a.err = err
		close(a.gone)
	})
	t.Cleanup(func() { _ = session.Carrier().Close(); <-a.gone })
	return a, nil
}

func (h *testHub) mustConnectControl(t *testing.T, spec agentSpec) *controlAgent {
	t.Helper()
	a, err := h.connectControl(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestClientsReachAgentsWithControlCarriers has no stream of the agent: clients of all
// kinds get carriers, and a dial that comes before the first carrier asks for it.
func TestClientsReachAgentsWithControlCarriers(t *testing.T) {
	h := startHub(t)
	a := h.mustConnectControl(t, agentSpec{cluster: "cluster1"})
	if hello := a.Peer(); hello.Session != h.options.ServerID || hello.Servers != uint64(h.servers.get()) {
		t.Errorf("the server says %+v, want its ID and how many servers there are", hello)
	}
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("cluster1"))
	asked := make(chan carrier.Control, 1)
	go func() {
		m := <-a.got
		asked <- m
		h.agentCarrier(t, "agent", config, "")
	}()
	conn, err := h.dial(t, h.clientTLS(t), "cluster1:443") // konnectivity's client
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "from konnectivity's", "from konnectivity's")
	if m := <-asked; m != agentapi.ControlMessage(agentapi.MoreCarriers, 1) {
		t.Errorf("the agent was asked %+v, want one carrier", m)
	}
	h.agentCarrier(t, "agent", config, "")
	ours, err := h.dialer(t).DialContext(t.Context(), "tcp", identity.HandlerHost("cluster1")+":7443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, ours, "from ours", "from ours")
	_, body := h.scrape(t, "/metrics")
	for _, want := range []string{`cluster_proxy_server_agents{speaks="carriers"} 1`, "konnectivity_network_proxy_server_ready_backend_connections 1"} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	_ = ours.Close()
	_ = conn.Close()
	_ = a.Close()
	eventually(t, "the agent is out of routing", func() bool { return !h.registry.knows("cluster1:443") })
	if _, err := h.dial(t, h.clientTLS(t), "cluster1:443"); err == nil || !strings.Contains(err.Error(), errNoAgent.Message) {
		t.Errorf("a dial to an agent that is gone = %v, want %q", err, errNoAgent.Message)
	}
}

// TestControlCarriersDeclareTheirOwnCluster: what control carriers say in HELLO decides nothing.
func TestControlCarriersDeclareTheirOwnCluster(t *testing.T) {
	h := startHub(t)
	refused := func(what string, spec agentSpec) {
		t.Helper()
		if _, err := h.connectControl(t, spec); carrier.CodeOf(err) != carrier.Denied {
			t.Errorf("%s: %v, want %s", what, err, carrier.Denied)
		}
	}
	for _, identifiers := range []string{"host=cluster2", "host=cluster1&host=cluster2", "host=cluster2." + identity.DefaultAgentNamespace, "host=" + identity.HandlerHost("cluster2"), "host=cluster1&default-route=true", "ipv4=10.0.0.1", " "} {
		refused(identifiers, agentSpec{cluster: "cluster1", identifiers: identifiers})
	}
	refused("an ID that is too long", agentSpec{cluster: "cluster1", id: strings.Repeat("a", maxAgentID+1)})
	if _, err := h.connectControl(t, agentSpec{cluster: "cluster1", ca: h.hubCA}); err == nil {
		t.Error("an agent certificate of the hub CA made a control session")
	}
	if _, err := h.connectControlTLS(t, agentSpec{cluster: "cluster1"}, h.tlsFor(t, h.agentCA, string(identity.RoleProxyAPI))); carrier.CodeOf(err) != carrier.Denied {
		t.Errorf("a certificate of no cluster: %v, want %s", err, carrier.Denied)
	}
	_, body := h.scrape(t, "/metrics")
	for reason, want := range map[string]int{"identifiers": 7, "metadata": 1, "certificate": 1} {
		if line := fmt.Sprintf(`cluster_proxy_server_agents_rejected_total{reason="%s"} %d`, reason, want); !strings.Contains(body, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	for _, host := range []string{"cluster1:443", "cluster2:443"} {
		if h.registry.knows(host) {
			t.Errorf("%s leads to an agent that was refused", host)
		}
	}
}

// TestOneCertificateOpensManyControlCarriers floods the server with sessions of one
// cluster, under many names and under one, and with carriers: it gets 64 sessions, 128 idle
// carriers for each and --max-carriers for all, while another cluster is served.
func TestOneCertificateOpensManyControlCarriers(t *testing.T) {
	const most = 140
	h := startHub(t, func(o *Options) { o.MaxCarriers = most })
	h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil"))
	connect := func(id string) (*controlAgent, error) {
		return h.connectControlTLS(t, agentSpec{cluster: "evil", id: id}, config)
	}
	for i := range maxAgents {
		if _, err := connect(fmt.Sprint("evil-", i)); err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	for i := range 100 {
		if _, err := connect(fmt.Sprint("more-", i)); carrier.CodeOf(err) != carrier.Overloaded {
			t.Fatalf("session %d: %v, want %s", maxAgents+i, err, carrier.Overloaded)
		}
	}
	var same []*controlAgent
	for range maxSessions + 2 {
		a, err := connect("evil-0")
		if err != nil {
			t.Fatal(err)
		}
		same = append(same, a)
	}
	// The first one of the name, made above, had to go as well.
	for i, a := range same[:2] {
		<-a.gone
		if carrier.CodeOf(a.err) != carrier.Draining {
			t.Errorf("session %d ended with %v, want that the server says why", i, a.err)
		}
	}
	eventually(t, "the newest ones are left", func() bool { return h.registry.controls() == 1+maxAgents-1+maxSessions })
	carriers := func(id string, n int) {
		for range n {
			conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), carrierTLS(config))
			if err != nil {
				t.Fatal(err)
			}
			c, err := carrier.Dialed(t.Context(), conn, carrier.Hello{Session: id},
				carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
		}
	}
	carriers("evil-1", maxIdle+10)
	carriers("evil-2", 30)
	eventually(t, "carriers are refused", func() bool {
		_, body := h.scrape(t, "/metrics")
		return strings.Contains(body, `cluster_proxy_server_cluster_limits_total{limit="idle carriers"} 10`) &&
			strings.Contains(body, fmt.Sprintf(`cluster_proxy_server_cluster_limits_total{limit="carriers"} %d`, maxIdle+30-most))
	})
	conn, err := h.dialer(t).DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatalf("another cluster: %v", err)
	}
	exchange(t, conn, "x", "cluster1:x")
	_ = conn.Close()
}

// TestControlCarriersThatMisbehave end at once, and with them the agent's place.
func TestControlCarriersThatMisbehave(t *testing.T) {
	h := startHub(t)
	a := h.mustConnectControl(t, agentSpec{cluster: "flood"})
	for a.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0)) == nil {
	}
	<-a.gone
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("garbage"))
	conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), carrierTLS(config))
	if err != nil {
		t.Fatal(err)
	}
	b, err := newControlAgent(t, conn, agentSpec{cluster: "garbage"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-b.gone
	if carrier.CodeOf(b.err) != carrier.Protocol {
		t.Errorf("garbage ended the session with %v, want %s", b.err, carrier.Protocol)
	}
	eventually(t, "both are out of routing", func() bool { return h.registry.controls() == 0 })
}

// memControl is a control carrier over memory; cut makes its packets vanish.
func (s *memServer) memControl(cluster string, cut chan struct{}) *controlAgent {
	return s.memControlOf(agentSpec{cluster: cluster}, cut)
}

func (s *memServer) memControlOf(spec agentSpec, cut chan struct{}) *controlAgent {
	t := s.hub.t
	t.Helper()
	files := pkitest.Issue(t, filepath.Join(s.hub.dir, s.options.ServerID+"-"+spec.cluster), s.hub.agentCA, pki.Leaf{CommonName: identity.AgentCommonName(spec.cluster), Client: true}, s.hub.hubCA)
	source := pki.NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	a, err := newControlAgent(t, tls.Client(s.agents.dial(cut), carrierTLS(source.ClientConfig("127.0.0.1"))), spec)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestDrainTellsControlCarriers drains a server: agents are told for how long it waits for
// them, those that come later too, and it waits for each that has not left.
func TestDrainTellsControlCarriers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		first := s.memControl("cluster1", make(chan struct{}))
		const timeout = 40 * time.Second
		began := time.Now()
		over := make(chan time.Duration, 1)
		go func() {
			s.drain(t.Context(), timeout, s.ports)
			over <- time.Since(began)
		}()
		want := agentapi.ControlMessage(agentapi.Draining, int(timeout/time.Second))
		if got := <-first.got; got != want {
			t.Errorf("the agent was told %+v, want %+v", got, want)
		}
		late := s.memControl("cluster2", make(chan struct{}))
		if got := <-late.got; got != want {
			t.Errorf("an agent that came later was told %+v, want %+v", got, want)
		}
		time.Sleep(20 * time.Second)
		for _, a := range []*controlAgent{first, late} {
			select {
			case <-over:
				t.Error("the drain is over before its agents have left")
			case <-time.After(time.Second):
			}
			if err := a.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0)); err != nil {
				t.Error(err)
			}
		}
		if took := <-over; took < 20*time.Second || took >= timeout {
			t.Errorf("the drain took %s, want that it ends with the last agent", took)
		}
		s.registry.end()
		<-first.gone
		<-late.gone
	})
}

// TestCountIsToldOnControlCarriers changes the number of servers.
func TestCountIsToldOnControlCarriers(t *testing.T) {
	h := startHub(t)
	a := h.mustConnectControl(t, agentSpec{cluster: "cluster1"})
	h.registry.tellCount(5)
	select {
	case got := <-a.got:
		if got.Kind != agentapi.ServerCount || got.Number != 5 {
			t.Errorf("the agent was told %+v, want 5 servers", got)
		}
	case <-time.After(testTimeout):
		t.Error("the agent was not told")
	}
}

// controls counts the control sessions.
func (a *agentRegistry) controls() (n int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.agents {
		agent.mu.Lock()
		n += len(agent.controls)
		agent.mu.Unlock()
	}
	return n
}
