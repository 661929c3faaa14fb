package agents

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// needFiles lets the test open n files. A test that did not run says nothing, so
// a machine that allows fewer fails it.
func needFiles(t testing.TB, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur >= n {
		return
	}
	before := limit
	limit.Cur, limit.Max = n, max(limit.Max, n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatalf("%d files are needed and %d allowed; raise the limit with 'ulimit -n %d'", n, before.Max, n)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
}

// crowd are the names of n clusters, at 127.16.0.0 and following.
func crowd(n int) (clusters []string) {
	for i := range n {
		clusters = append(clusters, fmt.Sprintf("127.16.%d.%d", i/250, 1+i%250))
	}
	return clusters
}

func percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(int(float64(len(times))*p), len(times)-1)]
}

// seldom asks five times a second: what is measured meanwhile must not be the
// server's answers about its metrics.
func seldom(condition func() bool) func() bool {
	var asked time.Time
	return func() bool {
		if time.Since(asked) < 200*time.Millisecond {
			return false
		}
		asked = time.Now()
		return condition()
	}
}

// Bounds of a storm's cost. How fast a machine works is its own affair, so the work
// is bounded by the handshakes of an agent, and the time by what is not work. Of
// the exchanges beside it, half must be as fast as before, or twice; one in a
// hundred may wait for handshakes, but not for all of them.
const (
	stormHandshakes = 6
	stormWait       = 15 * time.Second
	stormP99        = 100 * time.Millisecond
)

// TestReconnectStorm cuts 1,000 agents off at once. All must be back as soon as
// the machine has done the work, while others' connections are served about as fast
// as before: the handshakes are taken in turns. Under the race detector, which costs too much
// for times to mean anything, there are fewer agents and no limits; make
// test-scale runs it without.
func TestReconnectStorm(t *testing.T) {
	n := 1000 / scale
	needFiles(t, uint64(12*n+1000))
	h := newHub(t, 1)
	s := newTarget(t)
	server := h.startServer(nil)
	h.startAgent("127.1.0.1", "bystander", server.Addrs().Agent.String(), nil)
	d := h.dialer(server.Addrs().Client.String())
	h.mustReach(d.DialContext, s, "127.1.0.1")
	c := h.startChild(crowd(n), portOf(t, h.agents.address()))
	back := func() bool {
		return server.metric(t, "cluster_proxy_server_agents", `speaks="carriers"`) >= float64(n+1)
	}
	eventually(t, "all agents are connected", back)

	l := startLoad(s, 2, time.Millisecond, []dialFunc{d.DialContext}, []string{"127.1.0.1"})
	eventually(t, "there is something to compare with", func() bool { return l.done.Load() > 500/scale })
	quiet := l.take()
	made := func() float64 { return server.metric(t, "cluster_proxy_server_tls_handshakes_total", "") }
	handshakes := made()
	worked := both(t, c).Processor
	others := startNoise(t, worked)
	began := time.Now()
	h.agents.cut("")
	eventually(t, "the agents are gone", func() bool { // or all are back, while this machine had no time to look
		return !back() || made() >= handshakes+float64(n)
	})
	eventually(t, "all agents are back", seldom(back))
	elapsed := time.Since(began)
	stormy := l.take() // measuring takes the processor too
	now := both(t, c).Processor
	stretch := others.stretch(t, now)
	worked = now - worked
	l.stop(t)
	handshakes = made() - handshakes
	before, during := percentile(quiet, 0.5), percentile(stormy, 0.5)
	p99 := percentile(stormy, 0.99)
	t.Logf("%d agents were back after %s and %s of processor time with %.0f handshakes; exchanges beside them p50 %s → %s, p99 %s → %s; times stretched %.2f × by others",
		n, elapsed.Round(time.Millisecond), worked.Round(time.Millisecond), handshakes, before, during, percentile(quiet, 0.99), p99, stretch)
	if scale > 1 {
		return
	}
	stretched := func(d time.Duration) time.Duration { return time.Duration(float64(d) * stretch) }
	if limit := float64(stormHandshakes * n); handshakes > limit {
		t.Errorf("%d agents took %.0f handshakes, want %.0f at most", n, handshakes, limit)
	}
	if waited := elapsed - stretched(worked)/time.Duration(runtime.NumCPU()); waited > stormWait {
		t.Errorf("%d agents were back after %s, of which they waited %s instead of working, want %s at most", n, elapsed, waited, stormWait)
	}
	if limit := stretched(2*before + time.Millisecond); during > limit {
		t.Errorf("half of the exchanges beside the storm took more than %s, want %s at most; %s before it", during, limit, before)
	}
	if limit := stretched(stormP99); p99 > limit {
		t.Errorf("one in a hundred exchanges beside the storm took more than %s, want %s at most", p99, limit)
	}
}

// usage is what a crowd is counted by.
type usage struct {
	Memory, Goroutines, Files int
	Processor                 time.Duration
}

func measure() (usage, error) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	entries, err := os.ReadDir("/proc/self/fd")
	var used syscall.Rusage
	if err == nil {
		err = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	}
	processor := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return usage{int(stats.HeapInuse + stats.StackInuse), runtime.NumGoroutine(), len(entries), processor}, err
}

// both measures this process and the agents'.
func both(t *testing.T, c *child) usage {
	t.Helper()
	own, err := measure()
	if err != nil {
		t.Fatal(err)
	}
	other := c.report().Usage
	return usage{own.Memory + other.Memory, own.Goroutines + other.Goroutines, own.Files + other.Files, own.Processor + other.Processor}
}

func (u usage) since(before usage, n int) string {
	each := func(v int) float64 { return float64(v) / float64(n) }
	return fmt.Sprintf("%.1f KiB, %.1f goroutines and %.1f files each", each(u.Memory-before.Memory)/1024,
		each(u.Goroutines-before.Goroutines), each(u.Files-before.Files))
}

// TestIdleCrowd opens 5,000 connections over 500 agents, says what they cost in
// all processes together, and wants everything back after they are closed.
func TestIdleCrowd(t *testing.T) {
	agents, each := 500/scale, 10
	needFiles(t, uint64(3*agents*each+4*agents+1000))
	h := newHub(t, 1)
	server := h.startServer(nil)
	nobody := h.startChild(nil, 1)
	bare := both(t, nobody)
	clusters := crowd(agents)
	c := h.startChild(clusters, portOf(t, server.Addrs().Agent.String()))
	eventually(t, "all agents are ready", func() bool {
		return server.metric(t, "cluster_proxy_server_carriers", `side="agents",state="idle"`) >= float64(agents)
	})
	base := both(t, c)
	t.Logf("%d idle agents, both ends together: %s", agents, base.since(bare, agents))

	d := h.dialer(server.Addrs().Client.String())
	conns := h.dialCrowd(d.DialContext, clusters, strconv.Itoa(c.report().Port), agents*each)
	eventually(t, "all connections are at their target", func() bool { return c.report().Connections == len(conns) })
	t.Logf("%d idle connections, client, both relays and target together: %s", len(conns), both(t, c).since(base, len(conns)))
	for _, conn := range conns {
		_ = conn.Close()
	}
	eventually(t, "the targets' connections have ended", func() bool { return c.report().Connections == 0 })
	_ = d.Close()
	eventually(t, "the client's carriers are gone", func() bool {
		return server.metric(t, "cluster_proxy_server_carriers", `side="clients"`) == 0
	})
	// Carriers of agents are kept for a minute after their last use. An idle one
	// is a goroutine, a file and 2 KiB at each end.
	eventually(t, "nothing is left but idle carriers", func() bool {
		surplus := int(server.metric(t, "cluster_proxy_server_carriers", `side="agents",state="idle"`)) - agents
		now := both(t, c)
		return now.Goroutines <= base.Goroutines+2*surplus+50 && now.Files <= base.Files+2*surplus+50
	})
	t.Logf("after they were closed, in all: %s", both(t, c).since(base, 1))
}

func (h *hub) dialCrowd(dial dialFunc, clusters []string, port string, n int) []net.Conn {
	h.t.Helper()
	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	turns := make(chan struct{}, 32)
	for i := range conns {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(h.t.Context(), testTimeout)
			defer cancel()
			// How long a dial takes is for other tests: a machine that is busy enough
			// lets some time out.
			for {
				var err error
				if conns[i], err = dial(ctx, "tcp", net.JoinHostPort(clusters[i%len(clusters)], port)); err == nil {
					return
				}
				if ctx.Err() != nil {
					h.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if h.t.Failed() {
		h.t.FailNow()
	}
	return conns
}

// TestUploadThenClose writes and closes at once, to a target that reads slowly
// at first. Every byte must arrive.
func TestUploadThenClose(t *testing.T) {
	h := newHub(t, 1)
	server := h.startServer(nil)
	const cluster, size = "127.1.0.1", 16 << 20
	h.startAgent(cluster, "agent", server.Addrs().Agent.String(), nil)
	listener, err := net.Listen("tcp4", cluster+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	d := h.dialer(server.Addrs().Client.String())
	var conn net.Conn
	eventually(t, "the cluster can be reached", func() bool {
		conn, err = d.DialContext(t.Context(), "tcp", listener.Addr().String())
		return err == nil
	})
	at, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, size))
		_ = conn.Close()
		wrote <- err
	}()
	// The first part is read only when the way is full.
	total, buf := 0, make([]byte, 64<<10)
	stalled := time.NewTimer(2 * time.Second)
	select {
	case <-stalled.C:
	case err := <-wrote:
		t.Errorf("16 MiB fit into the way: %v", err)
	}
	for {
		n, err := at.Read(buf)
		total += n
		if err != nil {
			if total != size || err.Error() != "EOF" {
				t.Errorf("%d of %d bytes arrived, then %v, want all and EOF", total, size, err)
			}
			return
		}
	}
}
