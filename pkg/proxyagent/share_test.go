package proxyagent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// askEvery is longer than servers take, so that a test takes less time.
const askEvery = 5 * time.Second

// askers do what proxy servers do: each one that has more than its share of the agents
// asks some of them to move (proxyserver's moves.go).
type askers struct {
	*herd
	draining map[string]bool
	asked    map[string]map[*herdAgent]time.Time // by server
	moves    atomic.Int64
	stop     chan struct{}
}

func (h *herd) startAskers() *askers {
	a := &askers{herd: h, draining: map[string]bool{}, asked: map[string]map[*herdAgent]time.Time{}, stop: make(chan struct{})}
	go func() {
		for tick := time.NewTicker(askEvery); ; {
			select {
			case <-tick.C:
				a.ask()
			case <-a.stop:
				tick.Stop()
				return
			}
		}
	}()
	return a
}

// load is the agents of each server that does not drain.
func (a *askers) load() map[string][]*herdAgent {
	agents := map[string][]*herdAgent{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for server := range a.servers {
		if !a.draining[server] {
			agents[server] = nil
		}
	}
	for _, agent := range a.agents {
		for server := range agent.leave {
			if _, counts := agents[server]; counts {
				agents[server] = append(agents[server], agent)
			}
		}
	}
	return agents
}

func (a *askers) ask() {
	load, sum := a.load(), 0
	for _, agents := range load {
		sum += len(agents)
	}
	mean := float64(sum) / float64(len(load))
	for _, server := range slices.Sorted(maps.Keys(load)) {
		if a.asked[server] == nil {
			a.asked[server] = map[*herdAgent]time.Time{}
		}
		maps.DeleteFunc(a.asked[server], func(agent *herdAgent, _ time.Time) bool { return !slices.Contains(load[server], agent) })
		var stay []*herdAgent
		for _, agent := range load[server] {
			if at, asked := a.asked[server][agent]; !asked || time.Since(at) >= 10*time.Minute {
				stay = append(stay, agent)
			}
		}
		if float64(len(stay)) <= 1.05*mean+1 {
			continue
		}
		for range min(len(stay)-int(mean), int(askEvery/time.Second)*max(10/len(load), 1)) {
			// A hash of the time is as good as chance, and the same in each run.
			i := int(time.Now().UnixNano()>>3) % len(stay)
			i = (i*7919 + int(a.moves.Load())*104729) % len(stay)
			agent := stay[max(i, -i)]
			a.asked[server][agent] = time.Now()
			a.moves.Add(1)
			agent.move(server, len(load))
		}
	}
}

// restart replaces a server as a rolling restart does.
func (a *askers) restart(old, replacement string) {
	a.mu.Lock()
	a.draining[old] = true
	a.mu.Unlock()
	a.add(replacement)
	a.remove(old)
	a.tell(len(a.load()))
	a.all(func(agent *herdAgent) {
		if agent.leave[old] != nil {
			agent.drains(old, 60)
		}
	})
	time.Sleep(time.Minute)
	a.lose(old)
}

// checkSpread wants no server to have much more, or less, than its share of the agents.
func (a *askers) checkSpread(most, least float64) {
	a.t.Helper()
	load, sum := a.load(), 0
	var counts []int
	for _, agents := range load {
		sum += len(agents)
		counts = append(counts, len(agents))
	}
	slices.Sort(counts)
	mean := float64(sum) / float64(len(counts))
	a.t.Logf("agents by server: %v after %d moves", counts, a.moves.Load())
	if over, under := float64(counts[len(counts)-1])/mean, float64(counts[0])/mean; over > most || under < least {
		a.t.Errorf("servers have %v agents, from %.2f to %.2f times the mean; want %.2f to %.2f", counts, under, over, least, most)
	}
}

// TestAgentsSpreadOverServers has 1,000 agents that connect to some of the servers only.
// Whatever happens to servers, each one soon has its share of the agents, at a bounded rate
// of handshakes.
func TestAgentsSpreadOverServers(t *testing.T) {
	for _, tc := range []struct {
		name              string
		perAgent          int
		before, had       int // servers, and those that each agent has of them
		event             func(a *askers)
		servers, has      int // afterwards
		within            time.Duration
		oldest, mostMoves int // servers that stay; agents asked to move
		most              int // handshakes of one of these in any second
	}{
		{"from two to four", 0, 2, 2, func(a *askers) { a.grow(2, 4) }, 4, 2, 15 * time.Minute, 2, 1600, mostHandshakes},
		{"from three to four", 0, 3, 3, func(a *askers) { a.grow(3, 4) }, 4, 2, 15 * time.Minute, 3, 1800, mostHandshakes},
		{"from five to ten", 0, 5, 2, func(a *askers) { a.grow(5, 10) }, 10, 2, 15 * time.Minute, 5, 2200, mostHandshakes},
		{"from two to four, one for each agent", 1, 2, 1, func(a *askers) { a.grow(2, 4) }, 4, 1, 15 * time.Minute, 2, 1200, mostHandshakes},
		{"four are restarted, one after the other", 0, 4, 2, func(a *askers) {
			for i := range 4 {
				a.restart(fmt.Sprint(i), fmt.Sprint("new-", i))
				time.Sleep(30 * time.Second)
			}
		}, 4, 2, 15 * time.Minute, 0, 2200, mostHandshakes},
		{"one of four dies and comes back", 0, 4, 2, func(a *askers) {
			a.lose("3")
			time.Sleep(time.Minute)
			a.add("3")
			a.tell(4)
		}, 4, 2, 15 * time.Minute, 3, 1800, mostHandshakes},
		{"from four to two", 0, 4, 2, func(a *askers) {
			a.tell(2)
			for _, gone := range []string{"2", "3"} {
				a.remove(gone)
				a.all(func(agent *herdAgent) { agent.drains(gone, 60) })
			}
			time.Sleep(time.Minute)
			a.lose("2")
			a.lose("3")
		}, 2, 2, 15 * time.Minute, 2, 100, 80}, // a sixth of the agents has lost both of its servers
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range tc.before {
					names = append(names, fmt.Sprint(i))
				}
				h := newHerd(t, fleetSize)
				h.mu.Lock()
				h.peers = true
				for _, name := range names {
					h.servers[name] = true
				}
				for _, a := range h.agents {
					a.servers.mu.Lock()
					a.share.perAgent = tc.perAgent
					a.servers.mu.Unlock()
				}
				h.mu.Unlock()
				a := h.startAskers()
				defer close(a.stop)
				h.tell(tc.before)
				time.Sleep(time.Hour)
				h.checkServers(tc.had)
				a.checkSpread(1.2, 0.8)
				h.begin()
				a.moves.Store(0)
				tc.event(a)
				time.Sleep(tc.within)
				a.checkSpread(1.2, 0.75)
				time.Sleep(15 * time.Minute)
				h.checkServers(tc.has)
				a.checkSpread(1.1, 0.75)
				if moves := a.moves.Load(); moves > int64(tc.mostMoves) {
					t.Errorf("servers have asked agents to move %d times, want %d at most", moves, tc.mostMoves)
				}
				for _, name := range names[:tc.oldest] {
					most := h.most(name)
					t.Logf("server %s had at most %d handshakes in one second", name, most)
					if most > tc.most {
						t.Errorf("server %s had %d handshakes in one second, want %d at most", name, most, tc.most)
					}
				}
			})
		})
	}
}

// grow adds servers, of which agents hear at once.
func (a *askers) grow(from, to int) {
	for i := from; i < to; i++ {
		a.add(fmt.Sprint(i))
	}
	a.tell(to)
}

// partStream counts what a server is told, which it is not while the stream is used.
type partStream struct {
	left, ended chan struct{}
	used        *atomic.Bool
}

func newPartStream() partStream {
	return partStream{make(chan struct{}, 9), make(chan struct{}, 9), new(atomic.Bool)}
}

func (s partStream) leave()     { s.left <- struct{}{} }
func (s partStream) end()       { s.ended <- struct{}{} }
func (s partStream) over() bool { return s.used.Load() }

// fourServers is an agent that has servers a and b of four.
func fourServers(streams map[string]partStream) *servers {
	s := newServers(context.Background(), nil, pool.Config{}, dial.FullJitter)
	s.counted(4)
	for _, name := range []string{"a", "b"} {
		streams[name] = newPartStream()
		s.join(name, false, streams[name])
		s.findsPeers(name)
	}
	s.wanted(4)
	return s
}

// TestMove has a server ask its agent to move: the agent goes when it has another server,
// and serves dials on their way for a moment.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := map[string]partStream{}
		s := fourServers(streams)
		if wanted, _, _ := s.wanted(4); wanted != 2 {
			t.Fatalf("an agent wants %d servers of 4, want 2", wanted)
		}
		s.move("a", 4)
		s.move("unknown", 4)
		if wanted, _, _ := s.wanted(4); wanted != 3 || len(streams["a"].left) > 0 {
			t.Errorf("an agent that looks for another server wants %d, and has left the first one: %t; want 3 and false", wanted, len(streams["a"].left) > 0)
		}
		if s.goesAway([]string{"a"}) {
			t.Error("connections through a server should be replaced though the agent has no other one yet")
		}
		streams["c"] = newPartStream()
		s.join("c", false, streams["c"])
		s.findsPeers("c")
		synctest.Wait()
		if len(streams["a"].left) != 1 || len(streams["a"].ended) != 0 || len(streams["b"].left) != 0 {
			t.Errorf("with another server, a was told %d times and its stream ended %d times, b was told %d times; want 1, 0 and 0",
				len(streams["a"].left), len(streams["a"].ended), len(streams["b"].left))
		}
		for _, tc := range []struct {
			through []string
			want    bool
		}{{[]string{"a"}, true}, {[]string{"b", "a"}, false}, {[]string{"b", "c"}, false}} {
			if got := s.goesAway(tc.through); got != tc.want {
				t.Errorf("a connection through %q should be replaced: %t, want %t", tc.through, got, tc.want)
			}
		}
		time.Sleep(leaveAfter)
		synctest.Wait()
		if len(streams["a"].ended) != 1 {
			t.Errorf("%s later, the stream has ended %d times, want once", leaveAfter, len(streams["a"].ended))
		}
		if n := s.connected(); n != 2 {
			t.Errorf("%s later, the agent has %d servers, want 2", leaveAfter, n)
		}
	})
}

// TestMoveOfAUsedSession has the session with the server that is left become a carrier when the
// agent would tell it, and when it would end it.
func TestMoveOfAUsedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := map[string]partStream{}
		s := fourServers(streams)
		s.move("a", 4)
		streams["a"].used.Store(true)
		for _, name := range []string{"c", "d"} {
			streams[name] = newPartStream()
			s.join(name, false, streams[name])
			s.findsPeers(name)
			synctest.Wait()
			if told := len(streams["a"].left); name == "c" && told != 0 || name == "d" && told != 1 {
				t.Errorf("with server %s the one that is left was told %d times", name, told)
			}
			streams["a"].used.Store(false)
		}
		streams["a"].used.Store(true)
		time.Sleep(leaveAfter)
		synctest.Wait()
		if _, known := s.sessions["a"]; !known {
			t.Error("the server was left without the end of the session that is being renewed")
		}
		streams["a"].used.Store(false)
		time.Sleep(leaveAfter)
		synctest.Wait()
		if _, known := s.sessions["a"]; known || len(streams["a"].ended) != 1 {
			t.Errorf("the server is known: %t, and the stream has ended %d times; want false and 1", known, len(streams["a"].ended))
		}
		s.close()
	})
}

// TestMoveInVain has an agent whose address leads to the servers that it has.
func TestMoveInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := map[string]partStream{}
		s := fourServers(streams)
		s.move("a", 4)
		for range calmMisses + 1 {
			s.dialed()
		}
		if wanted, wait, _ := s.wanted(4); wanted != 2 || wait > 0 {
			t.Errorf("after %d dials in vain the agent wants %d servers and dials in %s, want 2 and no dial", calmMisses+1, wanted, wait)
		}
	})
}

// TestAgentsOfAllServersStay asks agents that are to be connected to every server.
func TestAgentsOfAllServersStay(t *testing.T) {
	for _, tc := range []struct {
		name   string
		total  int
		change func(s *servers)
	}{
		{"three servers", 3, func(*servers) {}},
		{"three servers, as the agent has counted", 0, func(s *servers) { s.wanted(3) }},
		{"one that reaches no peers", 4, func(s *servers) { s.sessions["b"].findsPeers = false }},
		{"four for each agent", 4, func(s *servers) { s.share.perAgent = 4 }},
		{"the server that asks drains too", 4, func(s *servers) { s.drains("a", 60) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fourServers(map[string]partStream{})
			tc.change(s)
			s.move("a", tc.total)
			if s.sessions["a"].leaving {
				t.Error("the agent moves, want that it stays")
			}
		})
	}
}

// TestMoveBeforeTheCount asks an agent to move that knows of fewer servers than the one that
// asks: there may be four since a moment, and another server may not know it for a minute.
func TestMoveBeforeTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fourServers(map[string]partStream{})
		s.counted(2)
		s.wanted(2)
		s.move("a", 4)
		for _, total := range []int{2, 4} {
			if wanted, _, _ := s.wanted(total); wanted != 3 {
				t.Errorf("an agent that looks for another server wants %d of %d, want 3", wanted, total)
			}
		}
	})
}

// TestMoveOfOneServerMore asks an agent to move that has all of three servers: when it hears
// that there are four, it has one server more than it wants, and leaves the one that asked.
func TestMoveOfOneServerMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := map[string]partStream{"c": newPartStream()}
		s := fourServers(streams)
		s.counted(3)
		s.wanted(3)
		s.join("c", false, streams["c"])
		s.findsPeers("c")
		s.move("a", 4)
		s.wanted(4)
		time.Sleep(leaveAfter)
		synctest.Wait()
		if len(streams["a"].left) != 1 || s.connected() != 2 {
			t.Errorf("the server that asked was told %d times that the agent leaves, which has %d servers; want 1 and 2", len(streams["a"].left), s.connected())
		}
	})
}

// TestServersThatStop tells the agent of servers that it is not connected to.
func TestServersThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fourServers(map[string]partStream{})
		s.stops(agentapi.NumberOf("d"))
		if !s.goesAway([]string{"a", "d"}) || s.goesAway([]string{"a", "c"}) {
			t.Error("connections through a server that stops should be replaced, and no others")
		}
		time.Sleep(remembered + time.Second)
		s.stops(agentapi.NumberOf("e"))
		if s.goesAway([]string{"a", "d"}) || !s.goesAway([]string{"a", "e"}) {
			t.Error("a name is remembered for too long, or not at all")
		}
	})
}

// TestServerThatCameBack has a server stop, as others say, and start again under its name.
func TestServerThatCameBack(t *testing.T) {
	s := newServers(t.Context(), nil, pool.Config{}, dial.FullJitter)
	s.join("a", false, newPartStream())
	old := newPartStream()
	s.join("b", false, old)
	s.stops(agentapi.NumberOf("b"))
	s.leave("b", old)
	if !s.goesAway([]string{"a", "b"}) {
		t.Error("connections through a server that stops should be replaced")
	}
	s.join("b", false, newPartStream())
	if s.goesAway([]string{"b"}) || s.goesAway([]string{"a", "b"}) {
		t.Error("connections through a server that is back should stay")
	}
}
