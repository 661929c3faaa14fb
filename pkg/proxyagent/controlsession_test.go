package proxyagent

import (
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

var eventually = wait.Poll{Every: time.Millisecond, For: 20 * time.Second}.Until

// fakeServers is an address at which control sessions lead to one server after the other.
// "" alone is konnectivity's, which knows no carriers.
type fakeServers struct {
	t        *testing.T
	names    atomic.Pointer[[]string]
	sessions chan *carrier.Session // of servers of ours, in the order of the dials
	got      chan carrier.Control
	controls atomic.Int32 // that were asked for
	opens    atomic.Bool  // servers of ours send an OPEN on a session
}

// startFakeServers also makes what dials them, whose agent lacks all of count servers.
func startFakeServers(t *testing.T, count int, names ...string) (*fakeServers, *servers) {
	t.Helper()
	ca := pkitest.NewCA(t, "test")
	leaf := pki.Leaf{CommonName: "x", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true}
	source := pki.NewReloader(pkitest.Issue(t, filepath.Join(t.TempDir(), "x"), ca, leaf, ca))
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	f := &fakeServers{t: t, sessions: make(chan *carrier.Session, 10), got: make(chan carrier.Control, 10)}
	f.names.Store(&names)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.serve(conn, source, uint64(count))
		}
	}()
	s := newTestServers(t.Context(), func(int) time.Duration { return time.Millisecond })
	s.config.MinIdle = 1
	s.search.total = count
	d := s.dialer
	d.address, d.serverName, d.agentID, d.identifiers, d.process = listener.Addr().String(), "127.0.0.1", "agent", "host=cluster1", "secret"
	d.source, d.decide, d.handshakeTimeout, d.handshakes = source, denyAll, 10*time.Second, &handshakes{failures: d.metrics.handshakeFailures}
	t.Cleanup(s.close)
	return f, s
}

func (f *fakeServers) serve(raw net.Conn, source *pki.Reloader, count uint64) {
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	if config.NextProtos = []string{carrier.ALPN, "h2"}; (*f.names.Load())[0] == "" {
		config.NextProtos = []string{"h2"}
	}
	conn := tls.Server(raw, config)
	if err := conn.Handshake(); err != nil || conn.ConnectionState().NegotiatedProtocol != carrier.ALPN {
		_ = conn.Close()
		return
	}
	hello, err := carrier.ReadHello(f.t.Context(), conn)
	if err != nil {
		return
	}
	if !slices.Contains(hello.Features, carrier.FeatureControl) { // carriers lead to another server
		if c, err := carrier.Answer(f.t.Context(), conn, carrier.Config{Role: carrier.Opener, Name: "another"}); err == nil {
			<-c.Done()
		}
		return
	}
	names := *f.names.Load()
	name := names[int(f.controls.Add(1)-1)%len(names)]
	if hello.Session != "agent" || hello.Identifiers != "host=cluster1" || agentapi.ProcessOf(hello.Features) != "secret" {
		f.t.Errorf("the agent says %+v, want its ID, hosts and secret", hello)
	}
	if !agentapi.MeantFor(hello.Features, name) && f.opens.Load() {
		carrier.Refuse(conn, &carrier.Error{Code: carrier.NoAgent})
		return
	}
	var opens *carrier.Config
	if f.opens.Load() {
		opens = &carrier.Config{Role: carrier.Opener}
	}
	session := carrier.AcceptSession(conn, hello, carrier.SessionConfig{Carrier: opens})
	f.sessions <- session // before the agent dials the next one, which it does when it has the answer
	if err := session.Answer(f.t.Context(), carrier.Hello{Session: name, Servers: count}); err != nil {
		return
	}
	session.Start(func(m carrier.Control) { f.got <- m }, func(error) {})
}

// openDenied opens a connection on a session, which is a carrier then. The agent denies it.
func openDenied(t *testing.T, session *carrier.Session) {
	t.Helper()
	eventually(t, "both know that an OPEN may come", session.Opens)
	if _, err := session.Carrier().Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "x:1"}); carrier.CodeOf(err) != carrier.Denied {
		t.Fatalf("a connection on the session: %v, want that the agent denies it", err)
	}
}

func totalIn(s *servers) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.search.total
}

func isKnown(s *servers, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id] != nil
}

// denyAll is a decision.
func denyAll(string, string) (policy.Target, error) { return policy.Target{}, errors.New("denied") }

// TestSessionsWithServers dials servers one after the other.
func TestSessionsWithServers(t *testing.T) {
	for name, test := range map[string]struct {
		servers []string
		dials   int
		want    int // sessions then
	}{
		"two servers":           {[]string{"one", "two"}, 2, 2},
		"the same one again":    {[]string{"one"}, 2, 1},
		"konnectivity's server": {[]string{""}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := startFakeServers(t, 2, test.servers...)
			for range test.dials {
				s.connect()
			}
			if got := s.countConnected(); got != test.want {
				t.Errorf("%d sessions, want %d", got, test.want)
			}
		})
	}
}

// TestKonnectivityServersAreRefused wants the agent to say what serves in its place.
func TestKonnectivityServersAreRefused(t *testing.T) {
	_, s := startFakeServers(t, 1, "")
	if _, err := s.dialer.dialSession(t.Context()); !errors.Is(err, carrier.ErrNoCarriers) || !strings.Contains(err.Error(), "run konnectivity's own agent") {
		t.Errorf("dialing a server of konnectivity's: %v", err)
	}
}

// TestAgentFollowsItsServers has the agent find two servers, and follow what they say.
func TestAgentFollowsItsServers(t *testing.T) {
	f, s := startFakeServers(t, 2, "one", "two")
	s.search.random = func(time.Duration) time.Duration { return time.Millisecond }
	ran := make(chan struct{})
	go func() { defer close(ran); s.run(s.connect) }()
	one, two := <-f.sessions, <-f.sessions
	eventually(t, "the agent has both servers", func() bool { return s.countConnected() == 2 })
	if n := totalIn(s); n != 2 {
		t.Errorf("the agent looks for %d servers, want the 2 of HELLO", n)
	}

	tell := func(session *carrier.Session, kind carrier.ControlKind, n int) {
		t.Helper()
		if err := session.Send(agentapi.ControlMessage(kind, n)); err != nil {
			t.Error(err)
		}
	}
	tell(one, agentapi.Draining, 60)
	leaves := agentapi.ControlMessage(agentapi.AgentLeaves, 0)
	if got := <-f.got; got != leaves {
		t.Errorf("a server that drains was told %+v, want that the agent has another one", got)
	}
	if !s.isGoingAway([]string{"one"}) || s.isGoingAway([]string{"two"}) {
		t.Error("the wrong server drains")
	}
	_ = one.Close() // it is gone, and the next dials lead to it again: it was started again
	again := <-f.sessions
	eventually(t, "the agent is back", func() bool { return s.countConnected() == 2 && !s.isGoingAway([]string{"one"}) })
	tell(two, agentapi.ServerCount, 3)
	eventually(t, "the agent looks for a third server", func() bool { return totalIn(s) == 3 && f.controls.Load() > 4 })
	s.stop()
	for range 2 {
		if got := <-f.got; got != leaves {
			t.Errorf("a server was told %+v, want that the agent drains", got)
		}
	}
	s.close()
	<-ran
	for _, session := range []*carrier.Session{again, two} {
		eventually(t, "the sessions end with the agent", func() bool { return session.Err() != nil })
	}
}

// TestControlSessionsAreRenewed has a server open connections on the session that an agent has
// with it. The agent makes another one with that server, wherever a load balancer leads, and
// is connected all the time.
func TestControlSessionsAreRenewed(t *testing.T) {
	f, s := startFakeServers(t, 1, "one", "two", "three", "one", "one")
	f.opens.Store(true)
	s.connect()
	session := <-f.sessions
	connected := func() int { return s.countConnected() }
	stats := func() pool.Stats {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.known["one"].pool.Stats()
	}
	openDenied(t, session)
	first, second := session, <-f.sessions
	if n := f.controls.Load(); n != 4 {
		t.Errorf("%d control sessions were asked for, want that the one that was used is replaced with the 4th", n)
	}
	eventually(t, "the pool has both", func() bool { return stats() == pool.Stats{Idle: 2} })
	if err := first.Carrier().Close(); err != nil || connected() != 1 {
		t.Errorf("%d servers are connected after the used session's end, want 1", connected())
	}
	leaves := agentapi.ControlMessage(agentapi.AgentLeaves, 0)
	s.stop()
	if got := <-f.got; got != leaves {
		t.Errorf("the server was told %+v, want that the agent drains", got)
	}
	session = second
	openDenied(t, session)
	_ = second.Carrier().Close() // before the agent can have another one
	third := <-f.sessions
	if got := <-f.got; got != leaves {
		t.Errorf("the server was told %+v, want that the agent drains still", got)
	}
	if connected() != 1 {
		t.Errorf("%d servers are connected, want 1", connected())
	}
	_ = third.Close()
	eventually(t, "the agent notices that the server ends the session", func() bool { return connected() == 0 })
}

// TestServersThatCannotBeReachedAgain take the agent's session for a connection, and their
// address leads to others then: without another server, the agent stays until that has ended,
// and leaves at once when it is told that it is forgotten.
func TestServersThatCannotBeReachedAgain(t *testing.T) {
	use := func(t *testing.T) (s *servers, session *carrier.Session) {
		f, s := startFakeServers(t, 1, "one", "two")
		f.opens.Store(true)
		s.connect()
		session = <-f.sessions
		f.names.Store(&[]string{"two"})
		eventually(t, "both know that an OPEN may come", session.Opens)
		_, _ = session.Carrier().Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "x:1"})
		eventually(t, "no dial leads to the server", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.known["one"].retryAt.IsZero()
		})
		return s, session
	}
	t.Run("until the connection has ended", func(t *testing.T) {
		s, session := use(t)
		if s.countConnected() != 1 {
			t.Error("the agent has left the server that it serves")
		}
		_ = session.Carrier().Close()
		eventually(t, "the agent looks for a server", func() bool { return s.countConnected() == 0 })
	})
	t.Run("forgotten", func(t *testing.T) {
		s, session := use(t)
		s.endSessions(s.known["one"])
		eventually(t, "the agent looks for a server", func() bool { return s.countConnected() == 0 })
		_ = session.Carrier().Close()
	})
}

// TestServersThatDrainAreToldOnce has connections opened on the sessions with one server while
// another one drains, which ends a session on which an agent says more than it has to.
func TestServersThatDrainAreToldOnce(t *testing.T) {
	const connections = 10
	names := append([]string{"one"}, slices.Repeat([]string{"two"}, connections+1)...)
	f, s := startFakeServers(t, 2, names...)
	f.opens.Store(true)
	s.connect()
	one := <-f.sessions
	s.connect()
	two := <-f.sessions
	if err := one.Send(agentapi.ControlMessage(agentapi.Draining, 60)); err != nil {
		t.Fatal(err)
	}
	leaves := agentapi.ControlMessage(agentapi.AgentLeaves, 0)
	if got := <-f.got; got != leaves {
		t.Errorf("a server that drains was told %+v, want that the agent has another one", got)
	}
	for range connections {
		openDenied(t, two)
		two = <-f.sessions
		eventually(t, "the session has taken the place of the one before", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			free := s.known["two"].renewal.TryLock()
			if free {
				s.known["two"].renewal.Unlock()
			}
			return free && s.known["two"].isListeningLocked()
		})
	}
	s.stop() // which the servers are told as well, on one session each
	told := 0
	for told < 2 {
		<-f.got
		told++
	}
	if more := len(f.got); more > 0 {
		t.Errorf("the servers were told %d times more than once that the agent leaves", more)
	}
}

// TestServersThatCannotBeHeard has a server open a connection on its session while no dial
// leads to it any more, so that it can neither say that it drains nor ask for carriers.
func TestServersThatCannotBeHeard(t *testing.T) {
	gone := func(t *testing.T, s *servers, one *carrier.Session) {
		t.Helper()
		eventually(t, "the agent has left the server, which knows it", func() bool { return !isKnown(s, "one") && one.Err() != nil })
	}
	for _, tc := range []struct {
		name string
		then func(t *testing.T, f *fakeServers, s *servers, one *carrier.Session)
	}{
		{name: "a dial finds another one", then: func(t *testing.T, f *fakeServers, s *servers, one *carrier.Session) {
			if _, lacking, _ := s.nextDial(); !lacking || one.Err() != nil {
				t.Errorf("the agent looks for a server: %t, and has the error %v of this one; want that it looks, and none while it has no other", lacking, one.Err())
			}
			eventually(t, "nothing is open on the server", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.known["one"].pool.Stats().InUse == 0
			})
			f.names.Store(&[]string{"three"})
			s.connect()
			gone(t, s, one)
		}},
		{name: "a dial leads to it again", then: func(t *testing.T, f *fakeServers, s *servers, _ *carrier.Session) {
			f.names.Store(&[]string{"one"})
			s.connect()
			one := <-f.sessions
			if _, lacking, _ := s.nextDial(); lacking || s.countConnected() != 2 {
				t.Errorf("the agent looks for a server: %t, and has %d, want 2 and no search", lacking, s.countConnected())
			}
			openDenied(t, one)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, s := startFakeServers(t, 2, "one", "two")
			f.opens.Store(true)
			s.search.random = func(most time.Duration) time.Duration { return most } // the test's dials come first
			s.connect()
			one := <-f.sessions
			s.connect()
			<-f.sessions
			f.names.Store(&[]string{"two"})
			openDenied(t, one)
			eventually(t, "no dial leads to the server, and users' connections take other ways", func() bool { return s.isGoingAway([]string{"one"}) })
			tc.then(t, f, s, one)
		})
	}
}

// TestServersThatCannotBeHeardAreKept has a connection open on the session with a server to
// which no dial leads any more: the server knows the agent by it, and would ask for carriers.
func TestServersThatCannotBeHeardAreKept(t *testing.T) {
	open := func(t *testing.T) (*fakeServers, *servers, net.Conn) {
		f, s := startFakeServers(t, 2, "one", "two")
		f.opens.Store(true)
		s.search.random = func(time.Duration) time.Duration { return time.Millisecond }
		target, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = target.Close() })
		s.dialer.decide = func(string, string) (policy.Target, error) {
			return policy.Target{Address: target.Addr().String()}, nil
		}
		s.connect()
		one := <-f.sessions
		s.connect()
		<-f.sessions
		f.names.Store(&[]string{"two"})
		eventually(t, "both know that an OPEN may come", one.Opens)
		conn, err := one.Carrier().Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "x:1"})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent knows that no dial leads to the server", func() bool {
			_, lacking, _ := s.nextDial()
			return lacking
		})
		f.names.Store(&[]string{"three"})
		s.connect()
		tries := f.controls.Load()
		eventually(t, "dials lead to others still", func() bool { return f.controls.Load() > tries+2*carrierTries })
		if !isKnown(s, "one") || !isKnown(s, "three") {
			t.Error("the agent should have the third server, and stay until nothing is open on the first one")
		}
		return f, s, conn
	}
	t.Run("until nothing is open", func(t *testing.T) {
		_, s, conn := open(t)
		_ = conn.Close()
		eventually(t, "the agent has left the server", func() bool { return !isKnown(s, "one") })
	})
	t.Run("until it can be heard", func(t *testing.T) {
		f, s, conn := open(t)
		defer conn.Close()
		f.names.Store(&[]string{"one"})
		eventually(t, "the agent has a session with the server again", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			one := s.known["one"]
			return one.isListeningLocked() && one.state == stateServing && len(s.known) == 3
		})
	})
}
