package fleet

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

// BenchmarkServers says what one of two, four and eight proxy servers has of the same agents and
// of the same dials: agents, carriers, goroutines and memory at rest, and how many dials it works on
// for each dial of a client that has dialed each cluster before, which counts twice what one server sends on to another. Processor
// time is that of all servers and of the client together, since they share this process; agents
// and their target have another one.
func BenchmarkServers(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { measureServers(b, n) })
	}
}

func measureServers(b *testing.B, n int) {
	agents := 400 / scale
	wanted := agents * min(n, 2)
	needFiles(b, uint64(20*agents+1000))
	h := newHub(b, n)
	before := mustMeasure(b)
	for range n {
		h.startServer(func(o *proxyserver.Options) {
			o.ServerCount = n
			o.CarrierIdleTime = 5 * time.Second // surplus ones of the beginning
		})
	}
	clusters := crowd(agents)
	c := h.startChild(clusters, portOf(b, h.agents.address()))
	// An agent in a hundred finds its second server minutes later.
	eventually(b, "agents have their servers, and carriers to them", seldom(func() bool {
		_, sum := agentsOn(b, h.servers)
		idle := 0.0
		for _, s := range h.servers {
			idle += s.metric(b, "cluster_proxy_server_carriers", `side="agents",state="idle"`)
		}
		return float64(sum) > 0.98*float64(wanted) && idle > 0.98*float64(sum) && idle < 2.02*float64(sum)
	}))
	rest := mustMeasure(b)
	counts, sum := agentsOn(b, h.servers)
	most := 0
	for _, count := range counts {
		most = max(most, count)
	}
	each := func(v int) float64 { return float64(v) / float64(n) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(each(sum), "agents/server")
	b.ReportMetric(float64(most), "most-agents")
	b.ReportMetric(each(rest.Goroutines-before.Goroutines), "goroutines/server")
	b.ReportMetric(each(rest.Memory-before.Memory)/1024, "KiB/server")

	dials := func() (all float64) {
		for _, s := range h.servers {
			all += s.metric(b, "cluster_proxy_server_dials_total", `result="ok"`)
		}
		return all
	}
	d := h.dialer(h.clients.address())
	port := fmt.Sprint(c.report().Port)
	const workers, perWorker = 8, 1500
	work := func(each int) {
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				for j := range each {
					conn, err := d.DialContext(b.Context(), "tcp", clusters[(i*each+j)%agents]+":"+port)
					if err != nil {
						b.Errorf("a dial: %v", err)
						return
					}
					_ = conn.Close()
				}
			})
		}
		wg.Wait()
	}
	work(2 * agents / workers) // the client meets all clusters, and agents dial the carriers that are wanted
	began, handled := mustMeasure(b), dials()
	work(perWorker)
	const made = workers * perWorker
	b.ReportMetric((dials()-handled)/made/float64(n), "handled/server/dial")
	b.ReportMetric(float64((mustMeasure(b).Processor-began.Processor).Microseconds())/made/float64(n), "cpu-µs/server/dial")
}
