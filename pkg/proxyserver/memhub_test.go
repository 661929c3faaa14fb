package proxyserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// memHub is a hub's proxy servers over net.Pipe, so that time can be a test's
// own.
type memHub struct {
	t              *testing.T
	dir            string
	hubCA, agentCA *pki.CA
	cuts           map[string]chan struct{} // of the ways between servers, by who is dialed
}

func newMemHub(t *testing.T, dir string) *memHub {
	return &memHub{t: t, dir: dir, cuts: map[string]chan struct{}{}, hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
}

type memServer struct {
	*Server
	hub             *memHub
	agents, clients *memListener
	ports           *ports
}

// start runs a server until stop is called. Its peers are others.
func (h *memHub) start(name string, others ...*memServer) (s *memServer, stop func()) {
	h.t.Helper()
	clients := pkitest.Issue(h.t, filepath.Join(h.dir, name+"-clients"), h.hubCA, servingLeaf, h.hubCA)
	agents := pkitest.Issue(h.t, filepath.Join(h.dir, name+"-agents"), h.hubCA, servingLeaf, h.agentCA)
	o := NewOptions()
	o.ServerCert, o.ServerKey, o.ServerCACert = clients.Cert, clients.Key, clients.CA
	o.ClusterCert, o.ClusterKey, o.ClusterCACert = agents.Cert, agents.Key, agents.CA
	o.ServerID = name
	if len(others) > 0 {
		o.Peers = []string{"peers.example:8090"}
	}
	inner, err := New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	s = &memServer{Server: inner, hub: h, agents: newMemListener(), clients: newMemListener()}
	for _, source := range s.sources() {
		if err := source.Load(); err != nil {
			h.t.Fatal(err)
		}
	}
	arrivals := &health.Arrivals{Listener: s.clients}
	p := &ports{agent: s.agents, client: arrivals, arrivals: arrivals}
	serving := s.shareOut(p)
	s.ports = p
	go p.clients.serve()
	go p.agents.serve()
	for _, serve := range serving {
		go func() { _ = serve() }()
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	if s.peers != nil {
		h.introduce(ctx, s, others)
	}
	return s, func() {
		cancel()
		_ = p.agents.Close()
		s.registry.end()
		s.konnectivity.DrainClients(ctx)
		_ = s.clientCarriers.Close()
	}
}

// introduce makes others the peers of s.
func (h *memHub) introduce(ctx context.Context, s *memServer, others []*memServer) {
	byAddress := map[string]*memServer{}
	var ips []string
	for i, other := range others {
		ip := fmt.Sprint("10.0.0.", i+1)
		ips, byAddress[net.JoinHostPort(ip, "8090")] = append(ips, ip), other
	}
	s.peers.lookup = func(context.Context, string) ([]string, error) { return ips, nil }
	s.peers.dial = func(ctx context.Context, address, _ string) (*carrier.Carrier, error) {
		config := s.clientSource.ClientConfig("127.0.0.1")
		config.NextProtos = []string{carrier.ALPN}
		conn := tls.Client(byAddress[address].clients.dial(h.cuts[byAddress[address].options.ServerID]), config)
		hello := carrier.Hello{Session: s.options.ServerID}
		return carrier.Dialed(ctx, conn, hello, carrier.Config{Role: carrier.Opener, Relays: true})
	}
	go func() { _ = s.peers.run(ctx) }()
}

// dial connects to the listener; cut makes all packets vanish.
func (l *memListener) dial(cut chan struct{}) net.Conn {
	near, far := net.Pipe()
	l.conns <- newBuffered(&partitioned{far, cut})
	return newBuffered(&partitioned{near, cut})
}

// buffered is a connection whose Write does not wait for the other end to read,
// as TCP's does not. TLS needs that: both ends may write when a handshake ends.
type buffered struct {
	net.Conn
	queue chan []byte
	done  chan struct{}
	once  sync.Once
}

func newBuffered(conn net.Conn) *buffered {
	b := &buffered{Conn: conn, queue: make(chan []byte, 256), done: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-b.queue:
				if _, err := b.Conn.Write(p); err != nil {
					return
				}
			case <-b.done:
				return
			}
		}
	}()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case b.queue <- bytes.Clone(p):
		return len(p), nil
	case <-b.done:
		return 0, net.ErrClosed
	}
}

func (b *buffered) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.Conn.Close()
}

func (b *buffered) SetDeadline(t time.Time) error { return b.SetReadDeadline(t) }

func (b *buffered) SetWriteDeadline(time.Time) error { return nil }

// memAgent is an agent that speaks carriers.
type memAgent struct {
	cut  chan struct{} // close it, and all packets vanish
	gone atomic.Bool   // no new carrier reaches the server
	stop func()

	mu                   sync.Mutex
	open, opened, closed int // dials, and connections
}

// connect makes an agent with n carriers. It accepts connections to every port
// but 9, whose target never accepts.
func (s *memServer) connect(cluster, id string, n int) *memAgent {
	t := s.hub.t
	t.Helper()
	files := pkitest.Issue(t, filepath.Join(s.hub.dir, s.options.ServerID+"-"+id), s.hub.agentCA, pki.Leaf{CommonName: identity.AgentCommonName(cluster), Client: true}, s.hub.hubCA)
	source := pki.NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	a := &memAgent{cut: make(chan struct{})}
	session, err := newControlAgent(t, tls.Client(s.agents.dial(a.cut), carrierTLS(source.ClientConfig("127.0.0.1"))), agentSpec{cluster: cluster, id: id})
	if err != nil {
		t.Fatal(err)
	}
	carriers := pool.New(pool.Config{MinIdle: n, Dial: func(ctx context.Context) (*carrier.Carrier, error) {
		if a.gone.Load() {
			return nil, errors.New("the address leads to other servers only")
		}
		config := source.ClientConfig("127.0.0.1")
		config.NextProtos = []string{carrier.ALPN}
		hello := carrier.Hello{Session: id}
		return carrier.Dialed(ctx, tls.Client(s.agents.dial(a.cut), config), hello, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(a.serveOpen)})
	}})
	carriers.Start()
	a.stop = func() { _ = session.Carrier().Close(); _ = carriers.Close() }
	go func() {
		for {
			select {
			case m := <-session.got:
				if m.Kind == agentapi.MoreCarriers {
					carriers.Request(int(m.Number))
				}
			case <-session.gone:
				return
			}
		}
	}()
	synctest.Wait()
	return a
}

func (a *memAgent) serveOpen(_ context.Context, p *carrier.Pending) {
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
	if _, port, _ := net.SplitHostPort(p.Address); port == "9" {
		<-p.Carrier().Done()
		return
	}
	conn, err := p.Accept(carrier.Endpoints{})
	if err != nil {
		return
	}
	a.mu.Lock()
	a.opened++
	a.mu.Unlock()
	_, _ = conn.Read(make([]byte, 1))
	_ = conn.Close()
	a.mu.Lock()
	a.closed++
	a.mu.Unlock()
}

// served is how many connections the agent has opened.
func (a *memAgent) served() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened
}

// asked is how many dials the agent got.
func (a *memAgent) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// timedOpen opens a connection through s, and returns what that took.
func (s *memServer) timedOpen(address string) (*carrier.Conn, time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.hub.t.Context(), s.options.DialTimeout)
	defer cancel()
	conn, err := s.open(ctx, carrier.OpenRequest{Network: "tcp", Address: address})
	return conn, time.Since(began), err
}

// mustOpen opens a connection within most and closes it.
func (s *memServer) mustOpen(when string, most time.Duration) {
	s.hub.t.Helper()
	conn, elapsed, err := s.timedOpen("cluster1:443")
	if err != nil {
		s.hub.t.Errorf("%s: %v after %s, want a connection", when, err, elapsed)
		return
	}
	if elapsed > most {
		s.hub.t.Errorf("%s: a connection after %s, want %s at most", when, elapsed, most)
	}
	s.hub.t.Logf("%s: a connection after %s", when, elapsed)
	_ = conn.Close()
	synctest.Wait()
}

// mustOpenQuietly is mustOpen beside others.
func (s *memServer) mustOpenQuietly(when string, most time.Duration) {
	s.hub.t.Helper()
	conn, elapsed, err := s.timedOpen("cluster1:443")
	if err != nil || elapsed > most {
		s.hub.t.Errorf("%s: %v after %s, want a connection within %s", when, err, elapsed, most)
	}
	if conn != nil {
		_ = conn.Close()
	}
}
