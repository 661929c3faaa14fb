package proxyagent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
)

// herd is a fleet of agents and the proxy servers that they look for behind one
// load balancer. Nothing is dialed: what counts is who dials when.
type herd struct {
	t     *testing.T
	began time.Time

	mu         sync.Mutex
	servers    map[string]bool        // those that the load balancer leads to
	handshakes map[string]map[int]int // by server and second
	agents     []*herdAgent
	stopped    bool
}

// herdAgent is an agent whose dials are the herd's.
type herdAgent struct {
	*servers
	random  *rand.Rand
	leave   map[string]func() // by server that it has a session with
	arrived map[string]time.Time
	done    chan struct{}
}

func newHerd(t *testing.T, agents int, servers ...string) *herd {
	h := &herd{t: t, began: time.Now(), servers: map[string]bool{}, handshakes: map[string]map[int]int{}}
	for _, name := range servers {
		h.servers[name] = true
	}
	for i := range agents {
		random := rand.New(rand.NewPCG(uint64(i), 12))
		within := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
		backoff := func(failures int) time.Duration {
			return within(min(500*time.Millisecond<<min(failures-1, 10), 30*time.Second))
		}
		a := &herdAgent{servers: newTestServers(context.Background(), backoff), random: random,
			leave: map[string]func(){}, arrived: map[string]time.Time{}, done: make(chan struct{})}
		a.search.random = within
		h.agents = append(h.agents, a)
		go func() {
			defer close(a.done)
			a.run(func() { h.connect(a) })
		}()
	}
	t.Cleanup(func() {
		h.mu.Lock()
		h.stopped = true
		h.mu.Unlock()
		for _, a := range h.agents {
			a.close()
			<-a.done
		}
	})
	return h
}

// connect dials a session, which is the idle carrier to a server that is new.
func (h *herd) connect(a *herdAgent) {
	a.mu.Lock()
	a.search.dialed(a.servingLocked() > 0)
	a.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	reached := h.dial(a)
	if reached == "" || a.leave[reached] != nil {
		return
	}
	session := &fakeSession{}
	k := a.newServer(reached)
	session.ended = func() { h.end(a, k) }
	a.leave[reached] = func() { a.removeSession(k, session, false) }
	k.pool = pool.New(pool.Config{}) // to which nothing is dialed
	a.mu.Lock()
	a.addServerLocked(k, session)
	a.mu.Unlock()
	a.arrived[reached] = time.Now()
}

// end ends an agent's session with a server.
func (h *herd) end(a *herdAgent, k *server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if leave := a.leave[k.id]; leave != nil {
		delete(a.leave, k.id)
		leave()
	}
}

// dial makes a handshake with one of the servers that there are.
func (h *herd) dial(a *herdAgent) string {
	var names []string
	for name, there := range h.servers {
		if there {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	chosen := names[a.random.IntN(len(names))]
	if h.handshakes[chosen] == nil {
		h.handshakes[chosen] = map[int]int{}
	}
	h.handshakes[chosen][int(time.Since(h.began)/time.Second)]++
	return chosen
}

// all calls f for each agent.
func (h *herd) all(f func(a *herdAgent)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.agents {
		f(a)
	}
}

// begin forgets what was before.
func (h *herd) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began, h.handshakes = time.Now(), map[string]map[int]int{}
	for _, a := range h.agents {
		clear(a.arrived)
	}
}

func (h *herd) add(name string)    { h.mu.Lock(); h.servers[name] = true; h.mu.Unlock() }
func (h *herd) remove(name string) { h.mu.Lock(); delete(h.servers, name); h.mu.Unlock() }

// lose ends all sessions with a server.
func (h *herd) lose(name string) {
	h.remove(name)
	h.all(func(a *herdAgent) {
		if leave := a.leave[name]; leave != nil {
			delete(a.leave, name)
			leave()
		}
	})
}

// most is the largest number of handshakes of a server in a second.
func (h *herd) most(name string) (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.handshakes[name] {
		most = max(most, n)
	}
	return most
}

// times are when agents found a server, sorted; those that did not are left out.
func (h *herd) times(name string) (times []time.Duration) {
	h.all(func(a *herdAgent) {
		if at, ok := a.arrived[name]; ok {
			times = append(times, at.Sub(h.began))
		}
	})
	slices.Sort(times)
	return times
}

func (h *herd) percentile(name string, p float64) time.Duration {
	times := h.times(name)
	if len(times) == 0 {
		h.t.Fatalf("no agent found %q", name)
	}
	return times[min(int(p*float64(len(times))), len(times)-1)]
}

// tell says the number of servers on every session.
func (h *herd) tell(n int) { h.all(func(a *herdAgent) { a.noteTotal(n) }) }

// drain has a server drain, if the agent has it.
func drain(a *herdAgent, id string, seconds int) {
	a.mu.Lock()
	k := a.known[id]
	a.mu.Unlock()
	if k != nil {
		a.noteDraining(k, seconds)
	}
}

const fleetSize, mostHandshakes = 1000, 50

func (h *herd) settle(servers int) {
	h.tell(servers)
	time.Sleep(time.Duration(max(servers/3, 1)) * time.Hour) // one in a thousand needs the second one for ten
	synctest.Wait()
	h.checkServers(servers)
	h.begin()
}

// checkServers wants every agent to have so many servers.
func (h *herd) checkServers(wanted int) {
	h.t.Helper()
	counts := map[int]int{}
	h.all(func(a *herdAgent) { counts[len(a.leave)]++ })
	if counts[wanted] != len(h.agents) {
		h.t.Errorf("agents by how many servers they have: %v, want all to have %d", counts, wanted)
	}
}

// TestNoHerd counts the handshakes that 1,000 agents cost the servers that stay
// when another one comes, goes or is missing.
func TestNoHerd(t *testing.T) {
	for _, tc := range []struct {
		name      string
		servers   int
		event     func(h *herd)
		new       string        // the server to be found, if there is one
		half, all time.Duration // when half of the agents, and 99 of 100, have found it
	}{
		{"one of two is restarted", 2, func(h *herd) {
			h.add("new")
			h.remove("1")
			h.all(func(a *herdAgent) { drain(a, "1", 60) })
		}, "new", 90 * time.Second, 8 * time.Minute},
		{"one of three is restarted", 3, func(h *herd) {
			h.add("new")
			h.remove("1")
			h.all(func(a *herdAgent) { drain(a, "1", 60) })
		}, "new", 2 * time.Minute, 15 * time.Minute},
		{"a third one comes", 2, func(h *herd) {
			h.add("new")
			h.tell(3)
		}, "new", 2 * time.Minute, 15 * time.Minute},
		{"two more come to two", 2, func(h *herd) {
			h.add("new")
			h.add("3")
			h.tell(4)
		}, "new", 150 * time.Second, 15 * time.Minute},
		{"one of ten is restarted", 10, func(h *herd) {
			h.add("new")
			h.remove("1")
			h.all(func(a *herdAgent) { drain(a, "1", 60) })
		}, "new", 6 * time.Minute, 45 * time.Minute},
		{"one of two dies and comes back", 2, func(h *herd) {
			h.lose("1")
			time.Sleep(10 * time.Second)
			h.add("1")
		}, "1", 90 * time.Second, 8 * time.Minute},
		{"one of two is missing for an hour", 2, func(h *herd) { h.lose("1") }, "", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range tc.servers {
					names = append(names, fmt.Sprint(i))
				}
				h := newHerd(t, fleetSize, names...)
				h.settle(tc.servers)
				tc.event(h)
				time.Sleep(time.Hour)
				for _, name := range names {
					if name == tc.new {
						continue // what it costs to be found is what must be
					}
					if most := h.most(name); most > mostHandshakes {
						t.Errorf("server %s had %d handshakes in one second, want %d at most", name, most, mostHandshakes)
					}
				}
				if tc.new != "" {
					half, all := h.percentile(tc.new, 0.5), h.percentile(tc.new, 0.99)
					t.Logf("at most %d handshakes a second; half of the agents found the server after %s, 99 of 100 after %s", h.most("0"), half, all)
					if half > tc.half || all > tc.all || len(h.times(tc.new)) < fleetSize*99/100 {
						t.Errorf("of %d agents %d found the server, half after %s and 99 of 100 after %s; want %s and %s", fleetSize, len(h.times(tc.new)), half, all, tc.half, tc.all)
					}
				}
			})
		})
	}
}

// TestAgentsWithoutAServerAreQuick lets the servers of 1,000 agents go and come
// back. All agents must be back soon, and not at once.
func TestAgentsWithoutAServerAreQuick(t *testing.T) {
	for _, tc := range []struct {
		name     string
		event    func(h *herd)
		server   string
		all      time.Duration // when the last agent has found it
		mostEach int           // handshakes that the server has in any second
	}{
		// F9: one server in a second takes three handshakes of each agent.
		{"the network heals after 5 s", func(h *herd) {
			h.lose("0")
			time.Sleep(5 * time.Second)
			h.add("0")
		}, "0", 35 * time.Second, 1200},
		// F4.
		{"the server is away for 60 s", func(h *herd) {
			h.lose("0")
			time.Sleep(time.Minute)
			h.add("0")
		}, "0", 92 * time.Second, 200},
		{"the only server is restarted", func(h *herd) {
			h.add("new")
			h.remove("0")
			h.all(func(a *herdAgent) { drain(a, "0", 60) })
		}, "new", 31 * time.Second, 170},
		{"the only server, which gives no time, is restarted", func(h *herd) {
			h.add("new")
			h.remove("0")
			h.all(func(a *herdAgent) { drain(a, "0", 0) })
		}, "new", 4 * time.Second, 1400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHerd(t, fleetSize, "0")
				h.settle(1)
				tc.event(h)
				time.Sleep(10 * time.Minute)
				times := h.times(tc.server)
				if len(times) != fleetSize {
					t.Fatalf("%d agents of %d found the server", len(times), fleetSize)
				}
				last, most := times[len(times)-1], h.most(tc.server)
				t.Logf("half after %s, all after %s, %d handshakes in a second at most", h.percentile(tc.server, 0.5), last, most)
				if last > tc.all || most > tc.mostEach {
					t.Errorf("the last agent found the server after %s, and that had %d handshakes in a second; want %s and %d", last, most, tc.all, tc.mostEach)
				}
			})
		})
	}
}

// TestNewsEndsAPause lets something happen while agents wait for minutes to look
// for a server that is missing.
func TestNewsEndsAPause(t *testing.T) {
	for _, tc := range []struct {
		name  string
		event func(h *herd)
		all   time.Duration
	}{
		{"the only server is lost, and back", func(h *herd) { h.lose("0"); h.add("0") }, 15 * time.Second},
		{"a server says that the missing one has come", func(h *herd) { h.tell(2) }, 10 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHerd(t, 100, "0", "1")
				h.settle(2)
				h.lose("1")
				time.Sleep(time.Hour)
				h.begin()
				h.add("1")
				tc.event(h)
				time.Sleep(tc.all)
				if found := len(h.times("1")); found < 98 {
					t.Errorf("%d agents of 100 found the server within %s", found, tc.all)
				}
			})
		})
	}
}

// TestUsersHurryTheSearch has an agent whose only server drains and cannot be reached
// any more: it has half a minute to find another one, unless a user waits.
func TestUsersHurryTheSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backoff = 500 * time.Millisecond
		s := newTestServers(t.Context(), func(int) time.Duration { return backoff })
		s.search.random = func(most time.Duration) time.Duration { return most }
		k := addTestServer(s, "0")
		s.noteDraining(k, 60)
		calm, _, changed := s.nextDial()
		if want := 30 * time.Second; calm != want {
			t.Errorf("the next dial is in %s, want %s", calm, want)
		}
		s.requestCarriers(k, 1)
		select {
		case <-changed:
		default:
			t.Error("nothing says that the next dial is earlier")
		}
		if hurried, _, _ := s.nextDial(); hurried > 0 {
			t.Errorf("the next dial is in %s although a user waits, want now", hurried)
		}
		s.search.dialed(false)
		s.requestCarriers(k, 1)
		if again, _, _ := s.nextDial(); again != backoff {
			t.Errorf("after a dial in vain, the next one is in %s, want %s", again, backoff)
		}
	})
}
