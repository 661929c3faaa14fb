package proxyserver

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

func TestSurplus(t *testing.T) {
	for _, tc := range []struct {
		name       string
		own, going int
		mean       float64
		servers    int
		want       int
	}{
		{"alone", 1000, 0, 1000, 1, 0},
		{"its share", 500, 0, 500, 4, 0},
		{"a little more", 525, 0, 500, 4, 0},
		{"much more", 1000, 0, 500, 4, 2},
		{"of many servers", 1000, 0, 500, 40, 1},
		{"all that is too much goes already", 1000, 480, 500, 4, 0},
		{"some of it goes already", 1000, 400, 500, 2, 5},
		{"less", 100, 0, 500, 4, 0},
		{"few agents", 3, 0, 1.5, 4, 1},
		{"one agent", 1, 0, 0.25, 4, 0},
	} {
		if got := surplus(tc.own, tc.going, tc.mean, tc.servers); got != tc.want {
			t.Errorf("%s: %d are asked to move, want %d", tc.name, got, tc.want)
		}
	}
}

// TestAgentsAreAskedToMove has two servers, of which one has all agents.
func TestAgentsAreAskedToMove(t *testing.T) {
	hubs := startPeers(t, 2, func(o *Options) { o.ServerCount = 4 })
	var agents []*fakeAgent
	for i := range 6 {
		agents = append(agents, hubs[0].mustConnect(t, agentSpec{cluster: fmt.Sprint("cluster", i), moves: true, manual: true}))
	}
	older := hubs[0].mustConnect(t, agentSpec{cluster: "older", manual: true})
	moved := func() (n int) {
		for _, a := range agents {
			n += len(a.seen)
		}
		return n
	}
	eventually(t, "three of six agents are asked to move", func() bool { return moved() >= 2 })
	for _, a := range agents {
		if len(a.seen) == 0 {
			continue
		}
		if packet := <-a.seen; packet.Type != agentapi.Move {
			t.Errorf("an agent got %v, want that it moves", packet)
		}
	}
	if len(older.seen) > 0 {
		t.Errorf("an agent of an older release got %v, which it does not know", <-older.seen)
	}
}

// TestAskToMove asks each agent once, and those alone that connect to some of the servers.
func TestAskToMove(t *testing.T) {
	h := startHub(t)
	for i, spec := range []agentSpec{{moves: true}, {moves: true}, {moves: true}, {moves: true}, {}} {
		spec.cluster = fmt.Sprint("cluster", i)
		h.mustConnect(t, spec)
	}
	half := func(own int) (float64, int) { return float64(own) / 2, 2 }
	if asked := h.registry.askToMove(3, half); asked != 0 {
		t.Errorf("of three servers, to which agents connect all, %d agents are asked to move, want none", asked)
	}
	if asked := h.registry.askToMove(4, half); asked != 2 {
		t.Errorf("of four agents %d are asked to move, want 2", asked)
	}
	if asked := h.registry.askToMove(4, half); asked != 0 {
		t.Errorf("%d more agents are asked to move, though two go already", asked)
	}
	h.registry.mu.Lock()
	for _, agent := range h.registry.sessions {
		if !agent.askedAt.IsZero() {
			agent.askedAt = time.Now().Add(-moveAgain)
		}
	}
	h.registry.mu.Unlock()
	if asked := h.registry.askToMove(4, half); asked != 2 {
		t.Errorf("%s later %d agents are asked to move, want 2, since nobody has gone", moveAgain, asked)
	}
}

// TestMoveThatWasNotTold asks an agent whose control session has just become a carrier: it
// cannot hear that, and can be asked again when it has the next one.
func TestMoveThatWasNotTold(t *testing.T) {
	h := startHub(t)
	spec := agentSpec{cluster: "cluster1", opens: true, moves: true}
	first := h.mustConnectControl(t, spec)
	eventually(t, "the session can be used", func() bool { return h.registry.stats().Idle == 1 })
	conn, err := h.dialer(t).DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !first.Carries() {
		t.Fatal("the session was not used")
	}
	h.registry.mu.RLock()
	agent := h.registry.sessions[sessionKey{"cluster1", "agent"}]
	h.registry.mu.RUnlock()
	agent.askToMove(4)
	eventually(t, "it does not count as asked", func() bool { return !agent.askedToMove() })
	second := h.mustConnectControl(t, spec)
	eventually(t, "the agent can be told again", agent.isListening)
	agent.askToMove(4)
	if got := <-second.got; got != agentapi.ControlMessage(agentapi.Move, 4) || !agent.askedToMove() {
		t.Errorf("the agent was told %+v, and counts as asked: %t; want that it moves, as one of four servers asks", got, agent.askedToMove())
	}
}

// TestAgentsHearThatAPeerStops tells agents of one server that another one drains, those that
// are connected and those that come.
func TestAgentsHearThatAPeerStops(t *testing.T) {
	hubs := startPeers(t, 2, func(o *Options) { o.GracefulShutdownTimeout = testTimeout })
	old := hubs[0].carrierAgent(t, agentSpec{cluster: "cluster1", moves: true, manual: true}, 1)
	hubs[0].hear(t, 1)
	hold := hubs[1].carrierAgent(t, agentSpec{cluster: "cluster2"}, 2) // the drain waits for it
	hubs[1].stop()
	heard := func(a *fakeAgent) *client.Packet {
		t.Helper()
		for {
			select {
			case packet := <-a.seen:
				if packet.Type != agentapi.ServerCount {
					return packet
				}
			case <-time.After(testTimeout):
				t.Fatal("an agent does not hear that a proxy server drains")
			}
		}
	}
	if packet := heard(old); packet.Type != agentapi.PeerDraining || agentapi.ControlNumber(packet) != agentapi.NumberOf("server-1") {
		t.Errorf("an agent hears %v, want that server-1 drains", packet)
	}
	comes := hubs[0].carrierAgent(t, agentSpec{cluster: "cluster3", moves: true, manual: true}, 1)
	if packet := heard(comes); packet.Type != agentapi.PeerDraining || agentapi.ControlNumber(packet) != agentapi.NumberOf("server-1") {
		t.Errorf("an agent that comes hears %v, want that server-1 drains", packet)
	}
	_ = hold.stream.CloseSend()
}
