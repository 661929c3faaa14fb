package proxyserver

import (
	"context"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// TestDialFailuresAreCountedAsByKonnectivity tells an agent that says that its
// target is silent from one that says nothing itself.
func TestDialFailuresAreCountedAsByKonnectivity(t *testing.T) {
	h := startHub(t)
	for reason, err := range map[string]*carrier.Error{
		"error_response":       {Code: carrier.TimedOut, Message: "dial tcp 198.18.0.254:80: i/o timeout"},
		"backend_dial_timeout": {Code: carrier.TimedOut, Message: "no answer in time", Err: context.DeadlineExceeded},
		"no_agent":             errNoAgent,
		"frontend_close":       {Code: carrier.Canceled},
	} {
		before := h.dialFailures(t, reason)
		h.observeDial(time.Second, 0, err)
		if got := h.dialFailures(t, reason); got == before {
			t.Errorf("%v is not counted as %s: the counter stays %q", err, reason, got)
		}
	}
}

// dialFailures is the value of konnectivity's counter, "" before the first.
func (h *testHub) dialFailures(t *testing.T, reason string) string {
	t.Helper()
	_, metrics := h.scrape(t, "/metrics")
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, `konnectivity_network_proxy_server_dial_failure_count{reason="`+reason+`"} `); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestFullAgent has one of two agents refuse connections for want of memory. It has the fewest,
// and would be asked first for each.
func TestFullAgent(t *testing.T) {
	h := startHub(t)
	h.carrierAgent(t, agentSpec{cluster: "cluster1", id: "full", full: true}, 4)
	open := func() (*carrier.Conn, error) {
		return h.Server.open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"})
	}
	if _, err := open(); carrier.CodeOf(err) != carrier.Overloaded {
		t.Errorf("a dial with no other agent: %v, want %s", err, carrier.Overloaded)
	}
	h.carrierAgent(t, agentSpec{cluster: "cluster1", id: "free"}, 4)
	for range 3 {
		conn, err := open()
		if err != nil {
			t.Fatalf("a dial with another agent: %v", err)
		}
		defer conn.Close()
	}
	_, err := h.Server.open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:98"})
	if carrier.CodeOf(err) != carrier.Overloaded {
		t.Errorf("a dial while the other agent stops: %v, want %s", err, carrier.Overloaded)
	}
}

// TestDialsOfAFullCluster has a cluster with two agents have as many dials as it may. A dialer
// is refused once: every agent would refuse for the same reason.
func TestDialsOfAFullCluster(t *testing.T) {
	h := startHub(t)
	h.carrierAgent(t, agentSpec{cluster: "cluster1", id: "one"}, 2)
	h.carrierAgent(t, agentSpec{cluster: "cluster1", id: "two"}, 2)
	share := h.registry.choose("cluster1:443", nil, suspects).share
	share.dials.Add(share.maxDials)
	defer share.dials.Add(-share.maxDials)
	r := &route{server: h.Server, request: carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"}}
	if _, err := hedge(t.Context(), r.next); carrier.CodeOf(err) != carrier.Overloaded || len(r.tried) != 1 {
		t.Errorf("a dial too many: %v after %d agents, want %s after one", err, len(r.tried), carrier.Overloaded)
	}
}

// TestAgentsThatEndAreSpared has an agent that is about to stop at one server, and another
// agent of its cluster at a peer. Dials go to that one, and to the first when it is the last.
func TestAgentsThatEndAreSpared(t *testing.T) {
	hubs := startPeers(t, 2)
	ending := hubs[0].carrierAgent(t, agentSpec{cluster: "cluster1", id: "old", name: "old"}, 6)
	other := hubs[1].carrierAgent(t, agentSpec{cluster: "cluster1", id: "new", name: "new"}, 6)
	hubs[0].hear(t, 1, "cluster1")
	if err := ending.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is known to leave", func() bool { return hubs[0].registry.staying() == 0 })
	d := hubs[0].dialer(t)
	serves := func(want string) {
		t.Helper()
		conn, err := d.DialContext(t.Context(), "tcp", "cluster1:443")
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, conn, "x", want+":x")
		_ = conn.Close()
	}
	for range 4 {
		serves("new")
	}
	_ = other.Close()
	eventually(t, "the server knows that the peer has none", func() bool { return !hubs[0].peers.have("cluster1:443") })
	serves("old")
}

// TestEndOfAnAgentIsNotTheServers has an agent that stops refuse a dial. The client is not
// told so: it would replace its carriers by others that lead to the same agent.
func TestEndOfAnAgentIsNotTheServers(t *testing.T) {
	alone, peers := startHub(t), startPeers(t, 2)
	alone.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	peers[0].carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	peers[1].hear(t, 1, "cluster1")
	for _, h := range append(peers, alone) {
		c := h.carrier(t, h.clientTLS(t))
		if _, err := c.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:98"}); carrier.CodeOf(err) != carrier.NoAgent {
			t.Errorf("%s says %v, want %s", h.options.ServerID, err, carrier.NoAgent)
		}
		_ = c.Close()
	}
}
