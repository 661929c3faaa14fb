package handshakes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// simPort is a port on two cores that makes simRate handshakes a second, about
// what was measured on the port of agents.
type simPort struct {
	turns   *turns
	lobby   *lobby
	dropped atomic.Int32
	// first and second are what the flights of a handshake take.
	first, second time.Duration
}

const (
	simRest   = 16
	simTurns  = 4
	simRate   = 423
	simFlight = time.Second * simTurns / simRate / 2 / (simRest + 1)
	simRound  = 5 * time.Millisecond // to the peer and back
	simLimit  = 10 * time.Second     // of the peer and of the port
)

func newSimPort() *simPort {
	p := &simPort{turns: newTurns(simTurns, simRest), first: simFlight, second: simFlight}
	p.lobby = newLobby(func(string) { p.dropped.Add(1) })
	return p
}

// simConn comes from somewhere.
type simConn struct {
	net.Conn
	from string
}

func (c simConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}
func (c simConn) Close() error { return nil }

// flight works on one flight of a handshake.
func (p *simPort) flight(v *visitor, takes time.Duration, late <-chan time.Time) error {
	if err := p.turns.take(v.turn, late); err != nil {
		return err
	}
	time.Sleep(takes)
	p.turns.giveBack(v.turn)
	return nil
}

// handshake is a peer that answers.
func (p *simPort) handshake(from string) error {
	began := time.Now()
	v := p.lobby.enter(simConn{from: from})
	err := p.flight(v, p.first, time.After(queueTimeouts*simLimit))
	if err == nil {
		time.Sleep(simRound)
		err = p.flight(v, p.second, time.After(simLimit))
	}
	p.lobby.leave(v, "", err)
	if err == nil && time.Since(began) > simLimit {
		return errGaveUp
	}
	return err
}

// errGaveUp is a handshake that the port made too late for its peer.
var errGaveUp = errors.New("the peer gave up before its handshake ended")

// hello is a peer that sends a ClientHello and nothing else.
func (p *simPort) hello(from string) {
	v := p.lobby.enter(simConn{from: from})
	err := p.flight(v, p.first, time.After(queueTimeouts*simLimit))
	if err == nil {
		err = errors.New("silent")
		select {
		case <-v.gone:
		case <-time.After(simLimit):
		}
	}
	p.lobby.leave(v, "", err)
}

// TestManyHandshakesAtOnce lets thousands of agents come at once. The port must
// end the handshakes that it began, and make as many in the peers' time as it can.
func TestManyHandshakesAtOnce(t *testing.T) {
	for _, sources := range []int{5000, 3, 1} {
		t.Run(fmt.Sprint(sources, " sources"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 5000
				p := newSimPort()
				began := time.Now()
				var failed, gaveUp atomic.Int32
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						source := i % sources
						switch err := p.handshake(fmt.Sprintf("10.1.%d.%d:1", source/250, source%250)); {
						case errors.Is(err, errGaveUp):
							gaveUp.Add(1)
						case err != nil:
							failed.Add(1)
						}
					})
				}
				wg.Wait()
				t.Logf("%d handshakes took %s; %d failed, %d made room, %d were too late for their peers",
					n, time.Since(began), failed.Load(), p.dropped.Load(), gaveUp.Load())
				// One address has half of the places.
				room := max(0, n/sources-maxUnverifiedSource)
				if most := n/100 + room; int(failed.Load()) > most {
					t.Errorf("%d of %d handshakes failed, want %d at most", failed.Load(), n, most)
				}
				limit := int(simLimit / time.Second)
				if most := n/100 + max(room, n-limit*simRate); int(failed.Load()+gaveUp.Load()) > most {
					t.Errorf("%d of %d were not served in time, want %d at most", failed.Load()+gaveUp.Load(), n, most)
				}
			})
		})
	}
}

// TestStormOfResumedSessions lets a fleet come back with sessions that it had: the
// first flight is nearly all of a handshake then. The turns must be used all the same.
func TestStormOfResumedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, share = 3000, 5
		p := newSimPort()
		p.second = 2 * simFlight / share
		p.first = 2*simFlight - p.second
		began := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := p.handshake(fmt.Sprintf("10.1.%d.%d:1", i/250, i%250)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		least := n * time.Second / simRate
		if took := time.Since(began); took > least*115/100 {
			t.Errorf("%d handshakes took %s, want no more than %s by a seventh", n, took, least)
		}
	})
}

// TestStormBehindOneAddress lets a fleet come back through one address, with a
// control session and then two carriers for each agent. Handshakes that peers give
// up are made again, and must be few.
func TestStormBehindOneAddress(t *testing.T) {
	for _, agents := range []int{1000, 1500} {
		t.Run(fmt.Sprint(agents, " agents"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newSimPort()
				began := time.Now()
				var again atomic.Int32
				shakeHands := func(i int) {
					for p.handshake("10.0.0.1:1") != nil {
						again.Add(1)
						time.Sleep(time.Duration(100+i) * time.Millisecond)
					}
				}
				var wg sync.WaitGroup
				for i := range agents {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond / 2)
						shakeHands(i)
						for range 2 {
							wg.Go(func() { shakeHands(i) })
						}
					})
				}
				wg.Wait()
				t.Logf("%d agents were back after %s; %d of %d handshakes were made again", agents, time.Since(began), again.Load(), 3*agents)
				if most := 3 * agents / 100; int(again.Load()) > most {
					t.Errorf("%d handshakes were made again, want %d at most", again.Load(), most)
				}
			})
		})
	}
}

// TestFloodOfHellos sends 2,000 ClientHellos a second while 100 agents come.
func TestFloodOfHellos(t *testing.T) {
	for _, test := range []struct {
		name  string
		flood func(i int) string
		agent func(i int) string
		known bool // the agents were here before
		most  time.Duration
	}{
		{"from one address", func(int) string { return "192.0.2.1:1" }, func(i int) string { return fmt.Sprintf("10.1.0.%d:1", i) }, false, time.Second},
		{"from one IPv6 network", func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", 1+i) }, func(i int) string { return fmt.Sprintf("10.1.0.%d:1", i) }, false, time.Second},
		{"from everywhere", func(i int) string { return fmt.Sprintf("192.%d.%d.1:1", i/200%200, i%200) }, func(i int) string { return fmt.Sprintf("10.1.0.%d:1", i) }, true, time.Second},
		{"through the agents' balancer", func(int) string { return "10.0.0.1:1" }, func(int) string { return "10.0.0.1:1" }, false, 20 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newSimPort()
				const agents = 100
				var before sync.WaitGroup
				for i := range agents {
					if test.known {
						before.Go(func() { _ = p.handshake(test.agent(i)) })
					}
				}
				before.Wait()
				flood := time.NewTicker(500 * time.Microsecond)
				defer flood.Stop()
				var wg sync.WaitGroup
				var back time.Duration
				var failures atomic.Int32
				for i := range 16000 {
					<-flood.C
					wg.Go(func() { p.hello(test.flood(i)) })
					if i != 6000 {
						continue
					}
					began := time.Now()
					var returning sync.WaitGroup
					for i := range agents {
						returning.Go(func() {
							for p.handshake(test.agent(i)) != nil {
								failures.Add(1)
								time.Sleep(time.Duration(100+9*i) * time.Millisecond)
							}
						})
					}
					wg.Go(func() { returning.Wait(); back = time.Since(began) })
				}
				wg.Wait()
				t.Logf("%d agents were back after %s with %d failures", agents, back, failures.Load())
				if back > test.most {
					t.Errorf("the agents were back after %s, want %s at most", back, test.most)
				}
			})
		})
	}
}

// TestAwaitedCarriersComeFirst lets carriers that users wait for come in the
// middle of a storm.
func TestAwaitedCarriersComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSimPort()
		var wg sync.WaitGroup
		for i := range 4000 {
			wg.Go(func() { _ = p.handshake(fmt.Sprintf("10.1.%d.%d:1", i/250, i%250)) })
		}
		time.Sleep(time.Second)
		p.lobby.expect(netip.MustParsePrefix("10.1.0.7/32"), 2)
		began := time.Now()
		for range 2 {
			if err := p.handshake("10.1.0.7:2"); err != nil {
				t.Error(err)
			}
		}
		if elapsed := time.Since(began); elapsed > 50*time.Millisecond {
			t.Errorf("two awaited carriers took %s in a storm, want 50ms at most", elapsed)
		}
		if err := p.handshake("10.250.0.1:1"); err != nil {
			t.Error(err)
		}
		if elapsed := time.Since(began); elapsed < time.Second {
			t.Errorf("one that nobody waits for took %s, want it to queue", elapsed)
		}
		wg.Wait()
	})
}

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1":            "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1":   "192.0.2.7/32",
		"[2001:db8:1:2:3::4]:1":  "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":       "fe80::/64",
		"[2001:db8:1:2:ff::4]:1": "2001:db8:1:2::/64",
	} {
		if got := SourceOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got.String() != want {
			t.Errorf("SourceOf(%s) = %s, want %s", addr, got, want)
		}
	}
	if got := SourceOf(&net.UnixAddr{Name: "x"}); got.IsValid() {
		t.Errorf("SourceOf a Unix socket = %s, want none", got)
	}
}

// TestLobbyIsBounded fills the places of one source, and of all.
func TestLobbyIsBounded(t *testing.T) {
	p := newSimPort()
	first := p.lobby.enter(simConn{from: "192.0.2.1:1"})
	bystander := p.lobby.enter(simConn{from: "192.0.2.2:1"})
	for range maxUnverifiedSource {
		p.lobby.enter(simConn{from: "192.0.2.1:1"})
	}
	select {
	case <-first.gone:
	default:
		t.Error("the oldest connection of a full source has its place still")
	}
	for i := range maxUnverified {
		p.lobby.enter(simConn{from: fmt.Sprintf("10.%d.%d.1:1", i/250, i%250)})
	}
	select {
	case <-bystander.gone:
	default:
		t.Error("the oldest connection of all has its place still")
	}
	if n := p.lobby.byClass[unknown].Len(); n != maxUnverified {
		t.Errorf("%d connections are in the lobby, want %d", n, maxUnverified)
	}
	p.lobby.close()
	if n := p.lobby.byClass[unknown].Len(); n != 0 || len(p.lobby.bySource) != 0 {
		t.Errorf("%d connections of %d sources are in the lobby after it was closed", n, len(p.lobby.bySource))
	}
}

// TestOneCertificateFromEverywhere has a peer that comes from more sources than are remembered, which
// makes no other peer unknown, and peers that come from a few each.
func TestOneCertificateFromEverywhere(t *testing.T) {
	l := newLobby(func(string) {})
	come := func(peer, from string) class {
		v := l.enter(simConn{from: from})
		l.leave(v, peer, nil)
		return v.entered
	}
	come("honest", "192.0.2.1:1")
	for i := range maxKnown + 1 {
		come("hostile", fmt.Sprintf("[2001:db8:%x:%x::1]:1", i/65536, i%65536))
	}
	if got := come("honest", "192.0.2.1:1"); got != known {
		t.Errorf("the honest peer is of class %v, want known", got)
	}
	if got := come("hostile", fmt.Sprintf("[2001:db8:0:%x::1]:1", maxKnown)); got != known {
		t.Errorf("the last source is of class %v, want known", got)
	}
	if n := len(l.verified); n != maxKnownOfPeer+1 || l.recent.Len() != n || l.ofPeer["hostile"].Len() != maxKnownOfPeer {
		t.Errorf("%d sources are known, %d of them hostile, want %d and one more", n, l.ofPeer["hostile"].Len(), maxKnownOfPeer)
	}
	for i := range 2 * maxKnown {
		come(fmt.Sprint("peer", i), fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if n := len(l.verified); n != maxKnown || l.recent.Len() != n || len(l.ofPeer) != n {
		t.Errorf("%d sources of %d peers are known, want %d of each", n, len(l.ofPeer), maxKnown)
	}
}
