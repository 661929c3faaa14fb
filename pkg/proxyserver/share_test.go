package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// evilAgents opens streams with one certificate, each under another agent ID.
type evilAgents struct {
	t     *testing.T
	h     *testHub
	conns []*grpc.ClientConn
	n     int
}

// next opens one more stream and returns how it ended, or nil if it did not.
func (e *evilAgents) next() error {
	if e.n%maxAgentStreams == 0 {
		config := e.h.tlsFor(e.t, e.h.agentCA, identity.AgentCommonName("evil"))
		conn, err := grpc.NewClient(e.h.Addrs().Agent.String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = conn.Close() })
		e.conns = append(e.conns, conn)
	}
	e.n++
	ctx := metadata.AppendToOutgoingContext(e.t.Context(), header.AgentID, fmt.Sprint("evil-", e.n),
		header.AgentIdentifiers, identity.Identifiers(identity.Hosts("evil", identity.DefaultAgentNamespace)))
	stream, err := agent.NewAgentServiceClient(e.conns[len(e.conns)-1]).Connect(ctx)
	if err != nil {
		return err
	}
	if received, err := stream.Header(); err != nil || len(received.Get(header.ServerID)) == 0 {
		_, err = stream.Recv()
		return err
	}
	return nil
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse + stats.StackInuse
}

// TestOneCertificateOpensManySessions lets an agent call itself by many names. It
// gets 64 sessions, 128 idle carriers for each and --max-carriers for all, and another
// cluster is served meanwhile.
func TestOneCertificateOpensManySessions(t *testing.T) {
	const most = 140
	h := startHub(t, func(o *Options) { o.MaxCarriers = most })
	h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	before := heap()
	evil := &evilAgents{t: t, h: h}
	var refused error
	for range 200_000 {
		if refused = evil.next(); refused != nil {
			break
		}
	}
	if status.Code(refused) != codes.ResourceExhausted || evil.n != maxSessions+1 {
		t.Fatalf("session %d: %v, want that session %d is refused with ResourceExhausted", evil.n, refused, maxSessions+1)
	}
	for range 500 {
		if err := evil.next(); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("session %d: %v, want ResourceExhausted", evil.n, err)
		}
	}
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil"))
	config.NextProtos = []string{carrier.ALPN}
	carriers := func(id string, n int) {
		for range n {
			conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
			if err != nil {
				t.Fatal(err)
			}
			c, err := carrier.Dialed(t.Context(), conn, carrier.Hello{Session: id, Features: []string{carrier.FeatureName}},
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
	t.Logf("%d sessions and %d carriers cost %d KiB", maxSessions, most, (int64(heap())-int64(before))>>10)
	conn, err := h.dialer(t).DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatalf("another cluster: %v", err)
	}
	exchange(t, conn, "x", "cluster1:x")
	_ = conn.Close()
}

// TestCarriersComeAtTheSameTime has carriers of one cluster wait together between the look at the
// limit and their count, as those of a busy server may: no more get in than the limit says.
func TestCarriersComeAtTheSameTime(t *testing.T) {
	const most, all = 3, 12
	limits := newLimits()
	limits.MaxCarriers = most
	a := newAgentRegistry(limits, func(sessionKey, string) {})
	stream := &agentStream{agentLink: agentLink{cluster: "one", agentID: "a"}}
	agent, _, err := a.join(stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.leave(agent, stream)
	key := sessionKey{"one", "a"}
	var refused atomic.Int64
	a.refused = func(string) { refused.Add(1) }
	var near []*carrier.Carrier
	for range all {
		here, there := net.Pipe()
		go func() {
			_, _ = carrier.Dialed(t.Context(), there, carrier.Hello{}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
		}()
		c, _, err := carrier.Accepted(t.Context(), here, carrier.Config{})
		if err != nil {
			t.Fatal(err)
		}
		near = append(near, c)
		t.Cleanup(func() { _ = c.Close() })
	}
	agent.mu.Lock()
	var added sync.WaitGroup
	var begun atomic.Int64
	for _, c := range near {
		added.Go(func() { begun.Add(1); _ = a.add(key, c) })
	}
	for begun.Load() < all {
		runtime.Gosched()
	}
	agent.mu.Unlock()
	added.Wait()
	if stats := agent.pool.Stats(); stats.Idle != most || refused.Load() != all-most {
		t.Errorf("%d carriers are there and %d were refused by the limit, want %d and %d", stats.Idle, refused.Load(), most, all-most)
	}
}

// TestPendingDialsOfACluster fills what one cluster's agents may leave
// unanswered, by two agents together.
func TestPendingDialsOfACluster(t *testing.T) {
	share := &clusterShare{maxDials: 2}
	for i := range 2 {
		if !share.begin() {
			t.Fatalf("dial %d is refused", i)
		}
	}
	if share.begin() {
		t.Error("a third dial may begin")
	}
	share.end()
	if !share.begin() {
		t.Error("no dial may begin after one has ended")
	}
	a := newAgentRegistry(newLimits(), func(sessionKey, string) {})
	for cluster, want := range map[string]bool{"proven": true, "": false} {
		first, second := a.shareOf(cluster), a.shareOf(cluster)
		if same := first == second; same != want {
			t.Errorf("two agents of cluster %q have the same share: %t, want %t", cluster, same, want)
		}
	}
}

// TestNewestStreamOfAnAgentStays opens more streams under one ID than an agent may
// have: the oldest ones end.
func TestNewestStreamOfAnAgentStays(t *testing.T) {
	h := startHub(t)
	var all []*fakeAgent
	for range maxStreams + 2 {
		a, err := h.connectAgent(t, agentSpec{cluster: "cluster1"})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	<-all[0].gone
	<-all[1].gone
	for i, a := range all[2:] {
		select {
		case <-a.gone:
			t.Errorf("stream %d ended", i+2)
		default:
		}
	}
}

// TestAgentIDs tries what an agent may call itself.
func TestAgentIDs(t *testing.T) {
	h := startHub(t)
	for _, test := range []struct {
		id   string
		want codes.Code
	}{
		{"a", codes.OK},
		{strings.Repeat("a", maxAgentID), codes.OK},
		{strings.Repeat("a", maxAgentID+1), codes.PermissionDenied},
		{strings.Repeat("a", maxHeaders/2), codes.PermissionDenied},
		{"a/b c\"\\", codes.OK},
	} {
		_, err := h.connectAgent(t, agentSpec{cluster: "cluster1", id: test.id})
		if status.Code(err) != test.want {
			t.Errorf("an ID of %d bytes: %v, want %s", len(test.id), err, test.want)
		}
	}
	for _, identifiers := range []string{"", strings.Repeat("host=cluster1&", 1000) + "host=cluster1", "host=" + strings.Repeat("a", 4096)} {
		_, err := h.connectAgent(t, agentSpec{cluster: "cluster1", identifiers: identifiers + " "})
		if err == nil {
			t.Errorf("identifiers of %d bytes were taken", len(identifiers))
		}
	}
}

// TestDialsEndByTheirOwnAgentOnly lets an agent end another cluster's dial.
func TestDialsEndByTheirOwnAgentOnly(t *testing.T) {
	h := startHub(t)
	asked := h.mustConnect(t, agentSpec{cluster: "cluster1", manual: true})
	thief := h.mustConnect(t, agentSpec{cluster: "cluster2"})
	stream := h.rawClient(t)
	if err := stream.Send(dialPacket("cluster1:443", 42)); err != nil {
		t.Fatal(err)
	}
	<-asked.seen
	if err := thief.stream.Send(&client.Packet{Type: client.PacketType_DIAL_CLS, Payload: &client.Packet_CloseDial{
		CloseDial: &client.CloseDial{Random: 42}}}); err != nil {
		t.Fatal(err)
	}
	// The thief's stream is in order: once it carried a dial, its packet was seen.
	conn, err := h.dial(t, h.clientTLS(t), "cluster2:443")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	asked.accept(42, 9)
	if response, err := stream.Recv(); err != nil || response.GetDialResponse().GetConnectID() != 9 {
		t.Errorf("answer %v, %v; want connection 9", response, err)
	}
}

// TestAgentsOfAClusterAreShown follows the series of clusters while their agents come
// and go. An agent whose cluster is not proven has none.
func TestAgentsOfAClusterAreShown(t *testing.T) {
	a := newAgentRegistry(newLimits(), func(sessionKey, string) {})
	var leave []func()
	for _, key := range []sessionKey{{"one", "a"}, {"one", "a"}, {"one", "b"}, {"two", "c"}, {"", "d"}} {
		stream := &agentStream{agentLink: agentLink{cluster: key.cluster, agentID: key.agentID}}
		agent, _, err := a.join(stream, nil)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, func() { a.leave(agent, stream) })
	}
	show := func(want string) {
		t.Helper()
		const head = "# HELP cluster_proxy_server_cluster_agents Agents of a cluster that are connected to this proxy server. A cluster without any has no series; nor has any without --cluster-metrics, which is not set in PortForward mode.\n" +
			"# TYPE cluster_proxy_server_cluster_agents gauge\n"
		if want != "" {
			want = head + want
		}
		if err := testutil.CollectAndCompare(clusterAgents{a}, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	show("cluster_proxy_server_cluster_agents{managed_cluster=\"one\"} 2\ncluster_proxy_server_cluster_agents{managed_cluster=\"two\"} 1\n")
	leave[0]()
	leave[3]()
	show("cluster_proxy_server_cluster_agents{managed_cluster=\"one\"} 2\n")
	for _, i := range []int{1, 2, 4} {
		leave[i]()
	}
	show("")
}

// TestScrapesBesideAgentsThatCome reads the metrics of thousands of clusters while agents come and
// go: neither waits for the other for good.
func TestScrapesBesideAgentsThatCome(t *testing.T) {
	const clusters, scrapes = 2000, 20
	metrics := prometheus.NewRegistry()
	a := newAgentRegistry(newLimits(), func(sessionKey, string) {})
	m := newServerMetrics(metrics)
	m.watchAgents(a)
	m.watchCarriers("agents", a.stats)
	metrics.MustRegister(clusterAgents{a})
	come := func(cluster string) (leave func()) {
		stream := &agentStream{agentLink: agentLink{cluster: cluster, agentID: cluster}}
		agent, _, err := a.join(stream, nil)
		if err != nil {
			t.Error(err)
		}
		return func() { a.leave(agent, stream) }
	}
	for i := range clusters {
		defer come(fmt.Sprint("cluster", i))()
	}
	read := make(chan struct{})
	var coming sync.WaitGroup
	coming.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-read:
				return
			default:
				come(fmt.Sprint("another", i))()
			}
		}
	})
	for range scrapes {
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "cluster_proxy_server_cluster_agents" && len(family.GetMetric()) < clusters {
				t.Errorf("%d clusters are shown, want %d or more", len(family.GetMetric()), clusters)
			}
		}
	}
	close(read)
	coming.Wait()
}
