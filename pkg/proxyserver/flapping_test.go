package proxyserver

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// flapper is an agent.
type flapper struct {
	s       *memServer
	cluster string
	config  *tls.Config
}

// visit connects, lets a user open a connection to the agent's cluster, and goes away. It has a
// control session, which carries that connection if opens, and carriers if not.
func (f *flapper) visit(way string, opens bool) {
	t := f.s.hub.t
	cut := make(chan struct{}) // all packets vanish
	raws := []net.Conn{f.s.agents.dial(cut)}
	a, err := newControlAgent(t, tls.Client(raws[0], f.config.Clone()), agentSpec{cluster: f.cluster, process: f.cluster, opens: opens})
	if err != nil {
		t.Fatal(err)
	}
	var carriers []*carrier.Carrier
	for len(carriers) < 2 && !opens {
		raw := f.s.agents.dial(cut)
		raws = append(raws, raw)
		hello := carrier.Hello{Session: "agent", Features: []string{agentapi.ProcessFeature(f.cluster)}}
		c, err := carrier.Dialed(t.Context(), tls.Client(raw, f.config.Clone()), hello, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(echoOpen)})
		if err != nil {
			t.Fatal(err)
		}
		carriers = append(carriers, c)
	}
	time.Sleep(time.Millisecond) // the server has the carriers
	conn, _, err := f.s.timedOpen(f.cluster + ":443")
	if err != nil {
		t.Errorf("a dial to an agent that has just come: %v", err)
		return
	}
	switch way {
	case "is killed":
		for _, raw := range raws {
			_ = raw.Close()
		}
	case "leaves":
		_ = a.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0))
		_ = a.Close()
	case "vanishes":
		close(cut)
	}
	_ = conn.Close()
	if way == "leaves" {
		_ = a.Carrier().Close() // which Close of a session that carries is not
	}
	time.Sleep(time.Minute)
	if f.s.registry.knows(f.cluster + ":443") {
		t.Errorf("an agent that %s is known for a minute, with a session that carries: %t", way, opens)
	}
	for _, c := range carriers {
		select {
		case <-c.Done():
		default:
			if way != "vanishes" { // where nobody tells it
				t.Errorf("an agent that %s has a carrier a minute later", way)
			}
		}
	}
	for _, raw := range raws {
		_ = raw.Close()
	}
}

// goroutinesOfBubble returns the number of goroutines in the caller's synctest bubble. That of the
// process has also what the runtime starts for finalizers and cleanups, and other tests' goroutines.
func goroutinesOfBubble() int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	own, _, _ := bytes.Cut(stacks, []byte("]:\n")) // the caller's comes first: "goroutine 7 [running, synctest bubble 3"
	_, bubble, _ := bytes.Cut(own, []byte(", "))
	return bytes.Count(stacks, append([]byte(", "), append(bubble, "]:\n"...)...))
}

// TestFlappingAgentsOfOurs has agents with control carriers and carriers that go in each way there
// is while a user has a connection to them.
func TestFlappingAgentsOfOurs(t *testing.T) {
	const agents, rounds = 10, 6
	ways := []string{"is killed", "leaves", "vanishes"}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hub := newMemHub(t, dir)
		s, stop := hub.start("server-0")
		defer stop()
		bystander := s.connect("cluster1", "bystander", 2)
		defer bystander.stop()
		synctest.Wait()
		goroutines, before := goroutinesOfBubble(), len(s.conns.conns)
		if goroutines == 0 {
			t.Fatal("no goroutine is found in this bubble")
		}
		var flapping sync.WaitGroup
		var dials atomic.Int32
		for i := range agents {
			f := &flapper{s: s, cluster: fmt.Sprint("flapping-", i)}
			files := pkitest.Issue(t, filepath.Join(dir, f.cluster), hub.agentCA, pki.Leaf{CommonName: identity.AgentCommonName(f.cluster), Client: true}, hub.hubCA)
			f.config = carrierTLS(pkitest.Load(t, files).ClientConfig("127.0.0.1"))
			flapping.Go(func() {
				for round := range rounds {
					f.visit(ways[(i+round)%len(ways)], (i+round)%2 == 0)
					s.mustOpenQuietly("beside flapping agents", 0)
					dials.Add(1)
					time.Sleep(time.Second)
				}
			})
		}
		flapping.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := bystander.served(); got != agents*rounds || int(dials.Load()) != got {
			t.Errorf("the agent of another cluster served %d of %d dials, want all of %d", got, dials.Load(), agents*rounds)
		}
		s.registry.mu.RLock()
		defer s.registry.mu.RUnlock()
		for what, n := range map[string]int{"sessions": len(s.registry.agents), "clusters": len(s.registry.clusters), "names": len(s.registry.names)} {
			if n != 1 {
				t.Errorf("%d %s are left, want that of the other cluster", n, what)
			}
		}
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		if len(s.conns.conns) != before || len(s.conns.processes) != 0 {
			t.Errorf("%d connections and %d processes are left, want %d and 0", len(s.conns.conns), len(s.conns.processes), before)
		}
		if n := goroutinesOfBubble(); n > goroutines {
			t.Errorf("%d goroutines are left of the agents", n-goroutines)
		}
	})
}
