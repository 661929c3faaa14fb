package handshakes

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// held are handshakes that a port works on until it is told to go on.
type held struct {
	mu     sync.Mutex
	from   []netip.Addr // in the order in which work began
	goOn   chan struct{}
	config *tls.Config
}

// newHeld makes the configuration of a server that works as long as the test wants.
func newHeld(t *testing.T, base *tls.Config) *held {
	t.Helper()
	h := &held{goOn: make(chan struct{})}
	h.config = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		h.mu.Lock()
		h.from = append(h.from, hello.Conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
		h.mu.Unlock()
		<-h.goOn
		if base.GetConfigForClient != nil {
			return base.GetConfigForClient(hello)
		}
		return base, nil
	}}
	return h
}

func (h *held) began() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]netip.Addr(nil), h.from...)
}

// eventually waits for what another goroutine does.
var eventually = wait.Poll{Every: time.Millisecond, For: time.Minute}.Until

// TestFloodBesideOthers sends many ClientHellos from one address and then one from
// another. The port must work on a few of them at a time, and the other one must be
// next.
func TestFloodBesideOthers(t *testing.T) {
	const limit, flood = 4, 40
	ca := pkitest.NewCA(t, "ca")
	source := pkitest.Load(t, pkitest.Issue(t, filepath.Join(t.TempDir(), "server"), ca, pki.Leaf{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, ca))
	h := newHeld(t, source.ServerConfig(tls.NoClientCert))
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := New(Options{Config: h.config, Limit: limit, Timeout: time.Minute, Dropped: func(string) {}})
	listener := NewListener(raw, port, klog.Background())
	defer listener.Close()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	dial := func(ip net.IP) (*tls.Conn, error) {
		conn, err := (&tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}, Config: source.ClientConfig("127.0.0.1")}).DialContext(ctx, "tcp", raw.Addr().String())
		if err != nil {
			return nil, err
		}
		return conn.(*tls.Conn), nil
	}
	for range flood {
		clients.Go(func() {
			if conn, err := dial(net.IPv4(127, 0, 0, 2)); err == nil {
				_ = conn.Close()
			}
		})
	}
	waiting := func() int {
		port.turns.mu.Lock()
		defer port.turns.mu.Unlock()
		return port.turns.waiting[unknown].n
	}
	working := limit - 1 // first flights leave a turn to those that were begun
	eventually(t, "all of the flood waits", func() bool { return waiting() == flood-working })
	eventually(t, "the port works on a few handshakes at a time", func() bool { return len(h.began()) == working })

	failed := make(chan error, 1)
	clients.Go(func() {
		conn, err := dial(net.IPv4(127, 0, 0, 3))
		if err == nil {
			_ = conn.Close()
		}
		failed <- err
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	eventually(t, "the other one waits", func() bool { return waiting() == flood-working+1 })
	for range 2 { // the flood's turn may be first
		h.goOn <- struct{}{}
	}
	other := netip.MustParseAddr("127.0.0.3")
	eventually(t, "the other one is worked on", func() bool {
		for _, from := range h.began() {
			if from == other {
				return true
			}
		}
		return false
	})
	if n := len(h.began()); n > working+3 {
		t.Errorf("%d handshakes began before the other one's, want %d at most", n, working+2)
	}
	close(h.goOn)
	if err := <-failed; err != nil {
		t.Errorf("the other one's handshake: %v", err)
	}
	stop()
}

// TestCloseEndsHandshakes closes a listener while a peer says nothing.
func TestCloseEndsHandshakes(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := New(Options{Config: &tls.Config{}, Limit: 1, Timeout: time.Hour, Dropped: func(string) {}})
	listener := NewListener(raw, port, klog.Background())
	conn, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "the connection is in the lobby", func() bool {
		port.lobby.mu.Lock()
		defer port.lobby.mu.Unlock()
		return len(port.lobby.bySource) == 1
	})
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the port answers on a connection that it should have closed")
	}
}
