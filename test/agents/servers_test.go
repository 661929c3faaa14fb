package agents

import (
	"fmt"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

// agentsOn are the agents with carriers of each server.
func agentsOn(t testing.TB, servers []*server) (counts []int, sum int) {
	t.Helper()
	for _, s := range servers {
		n := int(s.metric(t, "cluster_proxy_server_agents", `speaks="carriers"`))
		counts, sum = append(counts, n), sum+n
	}
	return counts, sum
}

// reachFromEach reaches every cluster through every server.
func (h *hub) reachFromEach(target *target, servers []*server, clusters []string) {
	h.t.Helper()
	for _, s := range servers {
		d := h.dialer(s.Addrs().Client.String())
		d.DialTimeout = testTimeout
		for _, cluster := range clusters {
			if err := target.exchange(h.t.Context(), d.DialContext, cluster, 1); err != nil {
				h.t.Errorf("cluster %s through %s: %v", cluster, s.options.ServerID, err)
			}
		}
	}
}

// TestFourServers has agents that have found two of four servers, and look for no more, since
// they are told of two. The servers are replaced one after the other under load. No dial fails,
// and each server reaches each cluster at any time.
func TestFourServers(t *testing.T) {
	four := func(o *proxyserver.Options) { inService(o); o.ServerCount = 2 }
	h := newHub(t, 8)
	target := newTarget(t)
	var servers []*server
	for range 4 {
		servers = append(servers, h.startServer(four))
	}
	clusters := crowd(12)
	agents := h.startPatientAgents(clusters)
	settled := func() error {
		if counts, sum := agentsOn(t, servers); sum < 2*len(clusters) {
			return fmt.Errorf("servers have %v agents, %d together; want %d at least", counts, sum, 2*len(clusters))
		}
		return nil
	}
	calmly.Success(t, "each agent to have two servers", settled)
	h.reachFromEach(target, servers, clusters)

	d := h.patientDialer()
	l, end := h.loadInService(t, target, clusters)
	for i := range servers {
		long := target.openLong(t, d.DialContext, clusters[i])
		old, before := servers[i], l.done.Load()
		servers[i] = h.startServer(four)
		h.retire(old)
		eventually(t, "work went on", func() bool { return l.done.Load() > before+20 })
		if err := long.ping(); err != nil {
			t.Errorf("a connection that was open before: %v", err)
		}
		_ = long.Close() // somebody waits for it
		<-old.done
	}
	end()
	h.reachFromEach(target, servers, clusters)
	calmly.Success(t, "each agent to have two servers again", settled)
	for _, last := range agents {
		last.stop() // or the servers would wait for it to find others
	}
}
