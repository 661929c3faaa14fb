package proxyserver

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestConnectionsOnControlSessions has an agent that dials control sessions only. Each
// takes one of the connections that wait, and is told first what the agent could not hear
// while it had none.
func TestConnectionsOnControlSessions(t *testing.T) {
	h := startHub(t)
	spec := agentSpec{cluster: "cluster1", opens: true}
	first := h.mustConnectControl(t, spec)
	eventually(t, "the session counts as an idle carrier", func() bool { return h.registry.stats().Idle == 1 })
	dialer, host := h.dialer(t), identity.HandlerHost("cluster1")+":7443"
	conns := make(chan net.Conn, 3)
	dial := func() {
		conn, err := dialer.DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Error(err)
		}
		conns <- conn
	}
	dial()
	if !first.Carries() || !h.registry.knows("cluster1:443") || h.registry.staying() != 1 {
		t.Error("the session was not used, or its agent is not known any more")
	}
	go dial()
	go dial()
	waiting := func() int {
		h.registry.mu.RLock()
		defer h.registry.mu.RUnlock()
		return h.registry.agents[agentKey{"cluster1", "agent"}].pool.Stats().Waiting
	}
	eventually(t, "both wait", func() bool { return waiting() == 2 })
	second := h.mustConnectControl(t, spec)
	if got := <-second.got; got != agentapi.ControlMessage(agentapi.MoreCarriers, 1) {
		t.Errorf("the agent was told %+v, want that users wait for one carrier more", got)
	}
	eventually(t, "one of them got through", func() bool { return second.Carries() && waiting() == 1 })
	h.registry.drain(40 * time.Second)
	third := h.mustConnectControl(t, spec)
	if got := <-third.got; got != agentapi.ControlMessage(agentapi.Draining, 40) {
		t.Errorf("the agent was told %+v, want that the server drains", got)
	}
	for range 3 {
		conn := <-conns
		exchange(t, conn, "x", "x")
		_ = conn.Close()
	}
	eventually(t, "the carriers can be used again", func() bool { return h.registry.stats().Idle == 3 })
	for _, a := range []*controlAgent{first, second, third} {
		select {
		case <-a.gone:
			t.Errorf("a carrier has ended: %v", a.err)
		default:
		}
	}
}

// TestUsedSessionsAreForgotten has an agent with many connections, each of which took a session.
func TestUsedSessionsAreForgotten(t *testing.T) {
	h := startHub(t)
	dialer := h.dialer(t)
	for range 5 {
		h.mustConnectControl(t, agentSpec{cluster: "cluster1", opens: true})
		eventually(t, "the session can be used", func() bool { return h.registry.stats().Idle == 1 })
		conn, err := dialer.DialContext(t.Context(), "tcp", "cluster1:443")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if n := h.registry.controls(); n != 2 {
		t.Errorf("%d sessions are remembered, want the last one and the one before it", n)
	}
}

// TestAgentsAreAwaited follows an agent whose only session has become a carrier and ends: it
// stays known as long as it takes to dial the next one.
func TestAgentsAreAwaited(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		spec := agentSpec{cluster: "cluster1", opens: true}
		connect := func() *controlAgent {
			a := s.memControlOf(spec, make(chan struct{}))
			synctest.Wait()
			return a
		}
		end := func(a *controlAgent) {
			_ = a.Carrier().Close()
			<-a.gone
			synctest.Wait()
		}
		known := func(when string, want bool) {
			t.Helper()
			if s.registry.knows("cluster1:443") != want {
				t.Errorf("%s, the agent is known: %t, want %t", when, !want, want)
			}
		}
		open := func() *carrier.Conn {
			t.Helper()
			conn, err := s.open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"})
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}

		a := connect()
		open()
		end(a)
		time.Sleep(agentapi.AwaitSession - time.Second)
		known("before the next session", true)
		go func() {
			time.Sleep(500 * time.Millisecond)
			a = s.memControlOf(spec, make(chan struct{}))
		}()
		conn := open() // which waits for that
		synctest.Wait()
		time.Sleep(2 * agentapi.AwaitSession)
		known("with the next session", true)

		b := connect()
		end(b) // a probe
		known("after a probe", true)
		b = connect()
		time.Sleep(stableAfter)
		end(b) // the agent leaves, and the connection goes on
		known("without a session", false)
		go func() { _, _ = conn.Write([]byte("x")) }()
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("what is open ends with the session: %v", err)
		}
		_ = conn.Close()
		end(a)

		for range 2 {
			a = connect()
			open()
			end(a)
			time.Sleep(agentapi.AwaitSession - time.Second)
		}
		known("soon after the last session", true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		known("long after it", false)
		a = connect()
		end(a)
		known("after a session that carried nothing", false)
	})
}

// TestAgentsThatLeaveSoon has an agent leave that had to make a new session a moment ago, while
// what it has open on the one before goes on.
func TestAgentsThatLeaveSoon(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		spec := agentSpec{cluster: "cluster1", opens: true}
		s.memControlOf(spec, make(chan struct{}))
		synctest.Wait()
		conn, err := s.open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"})
		if err != nil {
			t.Fatal(err)
		}
		next := s.memControlOf(spec, make(chan struct{}))
		if err := next.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = next.Close()
		<-next.gone
		synctest.Wait()
		if s.registry.knows("cluster1:443") {
			t.Error("the agent is known after it has left")
		}
		go func() { _, _ = conn.Write([]byte("x")) }()
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("what is open ends with the session: %v", err)
		}
		_ = conn.Close()
	})
}

// TestControlSessionsForOneServer are meant for this one, or for another one to which a load
// balancer should have led.
func TestControlSessionsForOneServer(t *testing.T) {
	h := startHub(t)
	if _, err := h.connectControl(t, agentSpec{cluster: "cluster1", meantFor: "another"}); carrier.CodeOf(err) != carrier.NoAgent {
		t.Errorf("a session for another server: %v, want %s", err, carrier.NoAgent)
	}
	if h.registry.knows("cluster1:443") {
		t.Error("its agent is known")
	}
	h.mustConnectControl(t, agentSpec{cluster: "cluster1", meantFor: h.options.ServerID})
	if !h.registry.knows("cluster1:443") {
		t.Error("the agent of a session for this server is not known")
	}
}

// TestAgentsTalkBesideConnections sends messages on a session that carries a connection: that
// ends, and nothing else does.
func TestAgentsTalkBesideConnections(t *testing.T) {
	h := startHub(t)
	h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 1)
	a := h.mustConnectControl(t, agentSpec{cluster: "evil", opens: true})
	eventually(t, "the session can be used", func() bool { return h.registry.stats().Idle == 2 })
	conn, err := h.dialer(t).DialContext(t.Context(), "tcp", "evil:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "x", "x")
	message := append(carrier.AppendHeader(nil, carrier.FrameControl, 2), 8, 1)
	if _, err := a.Carrier().Transport().Write(message); err != nil {
		t.Fatal(err)
	}
	<-a.gone
	if carrier.CodeOf(a.err) != carrier.Protocol {
		t.Errorf("the carrier ended with %v, want %s", a.err, carrier.Protocol)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the client's connection ended with %v, want an error", err)
	}
	other, err := h.dialer(t).DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, other, "x", "cluster1:x")
	_ = other.Close()
}

// TestRenewedCertificateReplacesUsedSessions has an agent show a new certificate: a carrier of
// the old one that was a session goes when it is idle, and a session stays.
func TestRenewedCertificateReplacesUsedSessions(t *testing.T) {
	h := startHub(t)
	old := h.issue(t, h.agentCA, agentCertificate("cluster1", "uid1", time.Hour), time.Now())
	connect := func() *controlAgent {
		a, err := h.connectControlTLS(t, agentSpec{cluster: "cluster1", process: "secret", opens: true}, old)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	used := connect()
	eventually(t, "the session can be used", func() bool { return h.registry.stats().Idle == 1 })
	conn, err := h.dialer(t).DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	session := connect()
	renewed := h.issue(t, h.agentCA, agentCertificate("cluster1", "uid1", time.Hour), time.Now().Add(2*time.Second))
	h.agentCarrier(t, "agent", renewed, "secret")
	exchange(t, conn, "x", "x")
	_ = conn.Close()
	<-used.gone
	eventually(t, "the session and the new carrier are left", func() bool { return h.registry.stats().Idle == 2 })
	if session.Err() != nil {
		t.Errorf("the session ended: %v", session.Err())
	}
}

// TestNothingIsLeftOfAgents ends a server with an agent whose session has become a carrier.
func TestNothingIsLeftOfAgents(t *testing.T) {
	h := startHub(t)
	used := h.mustConnectControl(t, agentSpec{cluster: "cluster1", opens: true})
	eventually(t, "the session can be used", func() bool { return h.registry.stats().Idle == 1 })
	conn, err := h.dialer(t).DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	eventually(t, "the carrier can be used again", func() bool { return h.registry.stats().Idle == 1 })
	session := h.mustConnectControl(t, agentSpec{cluster: "cluster1", opens: true})
	h.stop()
	<-h.done
	for name, a := range map[string]*controlAgent{"used session": used, "session": session} {
		select {
		case <-a.gone:
		case <-time.After(testTimeout):
			t.Errorf("the server has ended, and the %s has not", name)
		}
	}
	if code := carrier.CodeOf(session.Err()); code != carrier.Draining {
		t.Errorf("the session has ended with %v, want that the agent is told why", session.Err())
	}
}
