package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// anyOf is a client whose connections go to servers at random, as through a Service.
func anyOf(t *testing.T, hubs []*testHub) *tunnel.Dialer {
	t.Helper()
	config := hubs[0].clientTLS(t)
	d := &tunnel.Dialer{ProxyServer: hubs[0].clientAddr, TLS: func() *tls.Config { return config.Clone() },
		Address: func() string { return hubs[rand.IntN(len(hubs))].clientAddr }}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// dials is how many dials servers have worked on that reached an agent of the server
// itself for a client, and for a peer.
func dials(t *testing.T, hubs []*testHub) (direct []int, byPeer int) {
	t.Helper()
	value := func(body, series string) int {
		fields := strings.Fields(lineOf(body, series))
		if len(fields) != 2 {
			return 0
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, h := range hubs {
		_, body := h.scrape(t, "/metrics")
		direct = append(direct, value(body, `cluster_proxy_server_dials_total{result="ok",via="agent"}`))
		byPeer += value(body, `cluster_proxy_server_dials_total{result="ok",via="peer"}`)
	}
	return direct, byPeer / 2 // both servers count it
}

// dialAll dials clusters in turn, by several workers.
func dialAll(t *testing.T, d *tunnel.Dialer, clusters []string, workers, times int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for j := i; j < times; j += workers {
				conn, err := d.DialContext(t.Context(), "tcp", clusters[j%len(clusters)]+":443")
				if err != nil {
					t.Errorf("dialing %s: %v", clusters[j%len(clusters)], err)
					return
				}
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
}

// placed has agents of n clusters, each at two of the servers, in all pairs.
func placed(t *testing.T, hubs []*testHub, n int) (clusters []string) {
	t.Helper()
	at := make([][]string, len(hubs))
	var pairs [][2]int
	for i := range hubs {
		for j := range i {
			pairs = append(pairs, [2]int{i, j})
		}
	}
	for i := range n {
		clusters = append(clusters, fmt.Sprint("cluster", i))
		for _, at1 := range pairs[i%len(pairs)] {
			hubs[at1].carrierAgent(t, agentSpec{cluster: clusters[i], id: fmt.Sprint(clusters[i], "-", at1)}, 6)
			at[at1] = append(at[at1], clusters[i])
		}
	}
	for i, h := range hubs {
		var others []string
		for j := range hubs {
			if j != i {
				others = append(others, at[j]...)
			}
		}
		h.hear(t, len(hubs)-1, others...)
	}
	return clusters
}

// TestDialsGoStraight has four servers and agents at two of them each. Once a client has
// dialed each cluster, its dials arrive at servers that have the cluster's agents, and the
// dials of one cluster at both.
func TestDialsGoStraight(t *testing.T) {
	hubs := startPeers(t, 4)
	clusters := placed(t, hubs, 12)
	d := anyOf(t, hubs)
	dialAll(t, d, clusters, 4, 400)
	before, hopsBefore := dials(t, hubs)
	const made = 1000
	dialAll(t, d, clusters, 4, made)
	after, hops := dials(t, hubs)
	t.Logf("%d of the first 400 dials took two servers, %d of the next %d", hopsBefore, hops-hopsBefore, made)
	if hops -= hopsBefore; hops > made/20 {
		t.Errorf("%d of %d dials took two servers, want 5 %% at most", hops, made)
	}
	for i := range hubs {
		if n := after[i] - before[i]; n < made/8 || n > made*3/8 {
			t.Errorf("server %d has served %d of %d dials, want about a quarter", i, n, made)
		}
	}
	// Clusters 0 and 6 are at servers 1 and 0.
	before, _ = dials(t, hubs)
	dialAll(t, d, clusters[:1], 4, 200)
	after, _ = dials(t, hubs)
	if first, second := after[0]-before[0], after[1]-before[1]; first < 20 || second < 20 {
		t.Errorf("of 200 dials of one cluster its servers have served %d and %d, want both a good part", first, second)
	}
}

// goStraight waits until 19 of 20 dials to clusters arrive at servers that have their agents.
func goStraight(t *testing.T, hubs []*testHub, d *tunnel.Dialer, clusters []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("dials to %q go straight", clusters), func() bool {
		const made = 100
		_, before := dials(t, hubs)
		dialAll(t, d, clusters, 1, made)
		_, after := dials(t, hubs)
		t.Logf("%d of %d dials took two servers", after-before, made)
		return after-before <= made/20
	})
}

// TestDialsFollowAgents lets an agent go to another server, and then a server die: dials go
// on, and straight again soon.
func TestDialsFollowAgents(t *testing.T) {
	hubs := startPeers(t, 4)
	clusters := placed(t, hubs, 6)
	known := func(servers ...string) {
		t.Helper()
		for _, h := range hubs {
			want := slices.DeleteFunc(slices.Clone(servers), func(name string) bool { return name == h.options.ServerID })
			eventually(t, h.options.ServerID+" knows where the agent is", func() bool {
				names, _ := h.peers.having("moving")
				return slices.Equal(slices.Sorted(slices.Values(names)), want)
			})
		}
	}
	moving := hubs[0].carrierAgent(t, agentSpec{cluster: "moving"}, 6)
	hubs[2].carrierAgent(t, agentSpec{cluster: "moving"}, 6)
	known("server-0", "server-2")
	d := anyOf(t, hubs)
	clusters = append(clusters, "moving")
	dialAll(t, d, clusters, 4, 400)
	_ = moving.stream.CloseSend()
	<-moving.gone
	hubs[3].carrierAgent(t, agentSpec{cluster: "moving"}, 6)
	known("server-2", "server-3")
	goStraight(t, hubs, d, clusters[len(clusters)-1:])
	// Another agent's server dies.
	hubs[1].stop()
	<-hubs[1].done
	left := slices.Delete(slices.Clone(hubs), 1, 2)
	goStraight(t, left, d, clusters)
}

// TestAgentsThatEndAreSpared has an agent that is about to stop at one server, and another
// agent of its cluster at a peer. Dials go to that one, and to the first when it is the last.
func TestAgentsThatEndAreSpared(t *testing.T) {
	hubs := startPeers(t, 2)
	ending := hubs[0].carrierAgent(t, agentSpec{cluster: "cluster1", id: "old", name: "old"}, 6)
	other := hubs[1].carrierAgent(t, agentSpec{cluster: "cluster1", id: "new", name: "new"}, 6)
	hubs[0].hear(t, 1, "cluster1")
	if err := ending.stream.Send(&client.Packet{Type: client.PacketType_DRAIN, Payload: &client.Packet_Drain{Drain: &client.Drain{}}}); err != nil {
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
	_ = other.stream.CloseSend()
	<-other.gone
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

// TestAgentsDoNotRouteClients has an agent whose answer names servers: clients are told
// what servers know, and nothing where that is no choice.
func TestAgentsDoNotRouteClients(t *testing.T) {
	hubs := startPeers(t, 3)
	for _, h := range hubs[:2] {
		h.carrierAgent(t, agentSpec{cluster: "cluster1", id: h.options.ServerID}, 2)
		h.carrierAgent(t, agentSpec{cluster: "everywhere", id: "e" + h.options.ServerID}, 2)
	}
	hubs[2].carrierAgent(t, agentSpec{cluster: "everywhere", id: "e2"}, 2)
	hubs[0].hear(t, 2, "cluster1", "everywhere", "everywhere")
	hubs[2].hear(t, 2, "cluster1", "cluster1", "everywhere", "everywhere")
	for _, h := range []*testHub{hubs[0], hubs[2]} {
		for cluster, want := range map[string][]string{"cluster1": {"server-0", "server-1"}, "everywhere": nil} {
			c := h.carrier(t, h.clientTLS(t))
			ctx, cancel := context.WithTimeout(t.Context(), tunnel.DefaultDialTimeout)
			conn, err := c.Open(ctx, carrier.OpenRequest{Network: "tcp", Address: net.JoinHostPort(cluster, "443")})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(slices.Values(conn.Servers())); !slices.Equal(got, want) {
				t.Errorf("%s names servers %q for %s, want %q", h.options.ServerID, got, cluster, want)
			}
			_ = c.Close()
		}
	}
}
