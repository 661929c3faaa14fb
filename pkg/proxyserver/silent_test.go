package proxyserver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// session is the agent's session on s.
func (s *memServer) session(id string) *connectedAgent {
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	return s.registry.agents[agentKey{"cluster1", id}]
}

// occupy opens a connection through one agent, so that another one is the least
// used of them.
func (s *memServer) occupy(id string) *carrier.Conn {
	s.hub.t.Helper()
	conn, err := s.session(id).pool.Open(s.hub.t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"})
	if err != nil {
		s.hub.t.Fatal(err)
	}
	return conn
}

// TestSilentAgentIsPassedOver black-holes one of two agents. The first dials go
// to the other one after 2 s, and later ones at once, until the silent one
// answers again.
func TestSilentAgentIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		silent := s.connect("cluster1", "silent", 2)
		defer silent.stop()
		s.mustOpen("with one agent", 0)
		well := s.connect("cluster1", "well", 2)
		defer well.stop()
		defer s.occupy("well").Close()
		close(silent.cut)
		var wg sync.WaitGroup
		for i := range 20 { // the pool's idle carriers and more
			wg.Go(func() { s.mustOpenQuietly(fmt.Sprint("dial ", i), 3*time.Second) })
		}
		wg.Wait()
		for range 5 {
			s.mustOpen("once it is suspect", 0)
		}
		time.Sleep(10 * time.Second)
		s.mustOpen("10 s later", 0)
		if got := silent.served(); got != 1 {
			t.Errorf("the silent agent served %d dials, want 1", got)
		}
		back := s.connect("cluster1", "silent", 2)
		defer back.stop()
		s.mustOpen("after it came back", 0)
		if got := back.served(); got != 1 {
			t.Errorf("the agent that came back served %d dials, want 1", got)
		}
	})
}

// atTwoServers has an agent at a server and at its peer.
func atTwoServers(t *testing.T, dir string) (s *memServer, here, elsewhere *memAgent, stop func()) {
	t.Helper()
	hub := newMemHub(t, dir)
	peer, stopPeer := hub.start("peer")
	s, stopServer := hub.start("server-0", peer)
	elsewhere, here = peer.connect("cluster1", "agent", 2), s.connect("cluster1", "agent", 2)
	return s, here, elsewhere, func() {
		here.stop()
		elsewhere.stop()
		stopServer()
		stopPeer()
	}
}

// TestSilentAgentOfOneServer black-holes the way between an agent and one
// server, whose peer has the agent still.
func TestSilentAgentOfOneServer(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, here, elsewhere, stop := atTwoServers(t, dir)
		defer stop()
		s.mustOpen("before", 0)
		close(here.cut)
		s.mustOpen("at first", 3*time.Second)
		s.mustOpen("once it is suspect", 0)
		time.Sleep(time.Minute)
		s.mustOpen("when its stream is gone", 0)
		if here.served() != 1 || elsewhere.served() != 3 {
			t.Errorf("served %d here and %d elsewhere, want 1 and 3", here.served(), elsewhere.served())
		}
	})
}

// TestSilentAgentOfAPeer asks a peer whose agent is silent, and another one whose
// agent is well.
func TestSilentAgentOfAPeer(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hub := newMemHub(t, dir)
		one, stopOne := hub.start("one")
		defer stopOne()
		two, stopTwo := hub.start("two")
		defer stopTwo()
		s, stop := hub.start("server-0", one, two)
		defer stop()
		first := one.connect("cluster1", "agent", 2)
		defer first.stop()
		s.mustOpen("with one", 0)
		second := two.connect("cluster1", "agent", 2)
		defer second.stop()
		close(first.cut)
		s.mustOpen("at first", 3*time.Second)
		s.mustOpen("again", 0)
	})
}

// TestSilentPeerHasAnother has a cluster at two of three servers, and black-holes the way from
// the third one to the one that it asks first.
func TestSilentPeerHasAnother(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hub := newMemHub(t, dir)
		peers := map[string]*memServer{}
		for _, name := range []string{"one", "two"} {
			hub.cuts[name] = make(chan struct{})
			peer, stop := hub.start(name)
			defer stop()
			defer peer.connect("cluster1", "agent", 2).stop()
			peers[name] = peer
		}
		s, stop := hub.start("server-0", peers["one"], peers["two"])
		defer stop()
		time.Sleep(3 * followAgain)
		s.mustOpen("before", 0)
		s.peers.mu.Lock()
		first := map[string]string{"10.0.0.1:8090": "one", "10.0.0.2:8090": "two"}[s.peers.last["cluster1"].address]
		for _, one := range s.peers.known {
			if !one.told.complete || !one.told.has("cluster1") {
				t.Errorf("peer %s has not said that it has the cluster", one.address)
			}
		}
		s.peers.mu.Unlock()
		close(hub.cuts[first])
		s.mustOpen("at first", 3*time.Second)
		s.mustOpen("again", 0)
	})
}

// TestDialMeetsAnAgentThatComes has one agent, whose carriers are all in use and which
// cannot dial more, as when its server has left the Service: a dial waits for it, and
// takes the next way that opens, whichever server that is at.
func TestDialMeetsAnAgentThatComes(t *testing.T) {
	for _, stuckAt := range []string{"here", "peer"} {
		for _, comesTo := range []string{"here", "peer", "other"} {
			t.Run(stuckAt+" and "+comesTo, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) { dialMeetsAnAgentThatComes(t, dir, stuckAt, comesTo) })
			})
		}
	}
}

func dialMeetsAnAgentThatComes(t *testing.T, dir, stuckAt, comesTo string) {
	hub := newMemHub(t, dir)
	peer, stopPeer := hub.start("peer")
	defer stopPeer()
	other, stopOther := hub.start("other")
	defer stopOther()
	s, stop := hub.start("here", peer, other)
	defer stop()
	servers := map[string]*memServer{"here": s, "peer": peer, "other": other}
	stuck := servers[stuckAt].connect("cluster1", "stuck", 2)
	defer stuck.stop()
	stuck.gone.Store(true)
	defer servers[stuckAt].occupy("stuck").Close()
	defer servers[stuckAt].occupy("stuck").Close()
	const pause = 10 * time.Second
	came := make(chan *memAgent, 1)
	time.AfterFunc(pause, func() { came <- servers[comesTo].connect("cluster1", "comes", 2) })
	s.mustOpenQuietly("when another agent comes", pause+1500*time.Millisecond)
	comes := <-came
	defer comes.stop()
	synctest.Wait()
	if got := comes.served(); got != 1 {
		t.Errorf("the agent that came served %d dials, want 1", got)
	}
}

// TestDrainWithoutCarriers asks the peer at once when an agent that is about to stop, or
// any agent of a server that is, has no idle carrier: it may not dial any more.
func TestDrainWithoutCarriers(t *testing.T) {
	for who, drain := range map[string]func(*memServer){
		"agent":  func(s *memServer) { s.session("agent").controls[0].link().draining.Store(true) },
		"server": func(s *memServer) { s.registry.drain(time.Minute) },
	} {
		t.Run(who, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { drainWithoutCarriers(t, dir, drain) })
		})
	}
}

func drainWithoutCarriers(t *testing.T, dir string, drain func(*memServer)) {
	s, here, elsewhere, stop := atTwoServers(t, dir)
	defer stop()
	here.gone.Store(true)
	drain(s)
	s.mustOpen("while it has carriers", 0)
	one, two := s.occupy("agent"), s.occupy("agent")
	defer one.Close()
	defer two.Close()
	s.mustOpen("when it has none", 0)
	if here.served() != 3 || elsewhere.served() != 1 {
		t.Errorf("served %d here and %d elsewhere, want 3 and 1", here.served(), elsewhere.served())
	}
}

// TestSlowTargetIsNoSilentAgent dials a target that never accepts. Its agent
// answers pings, so no other agent is bothered and the agent stays trusted.
func TestSlowTargetIsNoSilentAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		asked := s.connect("cluster1", "asked", 2)
		defer asked.stop()
		other := s.connect("cluster1", "other", 2)
		defer other.stop()
		defer s.occupy("other").Close()
		if _, elapsed, err := s.timedOpen("cluster1:9"); carrier.CodeOf(err) != carrier.TimedOut || elapsed != s.options.DialTimeout {
			t.Errorf("error %v after %s, want that it timed out after %s", err, elapsed, s.options.DialTimeout)
		}
		if s.session("asked").alive.IsSuspect() {
			t.Error("the agent is suspect")
		}
		if got := other.asked(); got != 1 {
			t.Errorf("the other agent was asked %d times, want once", got)
		}
		if got := asked.asked(); got != 1 {
			t.Errorf("the agent was asked %d times, want once", got)
		}
	})
}

// TestLateConnectionIsClosed lets the way that was slower succeed as well.
func TestLateConnectionIsClosed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		agent := s.connect("cluster1", "agent", 2)
		defer agent.stop()
		open := func(after time.Duration) attempt {
			return func(_ context.Context, silent func()) (*carrier.Conn, error) {
				go silent()
				time.Sleep(after)
				return s.occupy("agent"), nil
			}
		}
		attempts := []attempt{open(3 * time.Second), open(time.Second)}
		began := time.Now()
		conn, err := hedge(t.Context(), func() attempt {
			if len(attempts) == 0 {
				return nil
			}
			next := attempts[0]
			attempts = attempts[1:]
			return next
		})
		if elapsed := time.Since(began); err != nil || elapsed != 3*time.Second {
			t.Fatalf("hedge: %v after %s, want a connection after 3s", err, elapsed)
		}
		_ = conn.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		agent.mu.Lock()
		defer agent.mu.Unlock()
		if agent.opened != 2 || agent.closed != 2 {
			t.Errorf("%d connections were opened and %d closed, want 2", agent.opened, agent.closed)
		}
	})
}
