package proxyserver

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// TestCarriersComeAtTheSameTime has carriers of one cluster wait together between the look at the
// limit and their count, as those of a busy server may: no more get in than the limit says.
func TestCarriersComeAtTheSameTime(t *testing.T) {
	const most, all = 3, 12
	limits := newLimits()
	limits.MaxCarriers = most
	a := newAgentRegistry(limits, func(agentKey, string) {})
	session := &fakeControl{agentLink: agentLink{cluster: "one", agentID: "a"}}
	agent, _, err := a.join(session, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.leave(agent, session)
	key := agentKey{"one", "a"}
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
	a := newAgentRegistry(newLimits(), func(agentKey, string) {})
	if first, second := a.shareOf("cluster1"), a.shareOf("cluster1"); first != second {
		t.Error("two agents of a cluster have shares of their own")
	}
}

// TestAgentsOfAClusterAreShown follows the series of clusters while their agents come
// and go.
func TestAgentsOfAClusterAreShown(t *testing.T) {
	a := newAgentRegistry(newLimits(), func(agentKey, string) {})
	var leave []func()
	for _, key := range []agentKey{{"one", "a"}, {"one", "a"}, {"one", "b"}, {"two", "c"}} {
		session := &fakeControl{agentLink: agentLink{cluster: key.cluster, agentID: key.agentID}}
		agent, _, err := a.join(session, nil)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, func() { a.leave(agent, session) })
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
	for _, i := range []int{1, 2} {
		leave[i]()
	}
	show("")
}

// TestScrapesBesideAgentsThatCome reads the metrics of thousands of clusters while agents come and
// go: neither waits for the other for good.
func TestScrapesBesideAgentsThatCome(t *testing.T) {
	const clusters, scrapes = 2000, 20
	metrics := prometheus.NewRegistry()
	a := newAgentRegistry(newLimits(), func(agentKey, string) {})
	m := newServerMetrics(metrics)
	m.watchAgents(a, func() int { return 0 })
	m.watchCarriers("agents", a.stats)
	metrics.MustRegister(clusterAgents{a})
	come := func(cluster string) (leave func()) {
		session := &fakeControl{agentLink: agentLink{cluster: cluster, agentID: cluster}}
		agent, _, err := a.join(session, nil)
		if err != nil {
			t.Error(err)
		}
		return func() { a.leave(agent, session) }
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

// fakeControl is a control session that is told nothing.
type fakeControl struct{ agentLink }

func (*fakeControl) tell(carrier.ControlKind, int) bool { return true }
func (*fakeControl) end()                               {}
func (*fakeControl) carries() bool                      { return false }
