package proxyagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http/httpproxy"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

func TestCarriersGoThroughHTTPSProxy(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) { carriersGoThrough(t, scheme) })
	}
}

func carriersGoThrough(t *testing.T, scheme string) {
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "hub.example:8091" {
			t.Errorf("asked for %q, want hub.example:8091", r.Host)
		}
		if r.Header.Get("Proxy-Authorization") != "Basic YWdlbnQ6b3Blbg==" { // agent:open
			http.Error(w, "who are you?", http.StatusProxyAuthRequired)
			return
		}
		conn, err := connect.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "the server")
	}))
	if scheme == "http" {
		proxy.Start()
	} else {
		proxy.StartTLS()
	}
	defer proxy.Close()
	through := func(user *url.Userinfo) (net.Conn, error) {
		t.Setenv("HTTPS_PROXY", (&url.URL{Scheme: scheme, User: user, Host: proxy.Listener.Addr().String()}).String())
		c := &carrierDialer{address: "hub.example:8091"}
		if scheme == "http" {
			return c.connect(t.Context())
		}
		if _, err := c.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "TLS with proxy") {
			t.Errorf("a proxy whose CA is unknown: %v, want an error of TLS", err)
		}
		known, err := proxyFor(c.address, httpproxy.FromEnvironment())
		if err != nil {
			return nil, err
		}
		known.tls.RootCAs = proxy.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		return c.connectBy(t.Context(), known)
	}
	conn, err := through(url.UserPassword("agent", "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "the server" {
		t.Errorf("got %q, %v, want \"the server\"", got, err)
	}
	if _, err := through(nil); err == nil || !strings.Contains(err.Error(), "407 Proxy Authentication Required") {
		t.Errorf("error %v, want what the proxy says", err)
	}
}

// egressProxy leads to a target, in the way that mode says: it "works", its process is "dead", it
// is "silent", or it cannot reach the target and says "503 Service Unavailable".
type egressProxy struct {
	net.Listener
	target string
	asked  atomic.Int32 // since the mode changed

	mu    sync.Mutex
	mode  string
	conns []net.Conn
}

func startEgressProxy(t *testing.T, target string) *egressProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &egressProxy{Listener: listener, target: target, mode: "works"}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); p.become("dead"); serving.Wait() })
	return p
}

// become ends what is open, as the end of its process does.
func (p *egressProxy) become(mode string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	p.asked.Store(0)
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// keep notes a connection, and returns the mode for it.
func (p *egressProxy) keep(conn net.Conn) (mode string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "dead" {
		_ = conn.Close()
	}
	p.conns = append(p.conns, conn)
	return p.mode
}

func (p *egressProxy) serve(conn net.Conn) {
	mode := p.keep(conn)
	p.asked.Add(1)
	if mode == "silent" {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	defer conn.Close()
	if r, err := http.ReadRequest(bufio.NewReader(conn)); err != nil || r.Method != http.MethodConnect {
		return
	}
	if mode != "works" {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", mode)
		return
	}
	there, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer there.Close()
	if p.keep(there) == "works" {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		_ = connect.Join(conn, there)
	}
}

// TestProxiesThatFail has the proxy end, fall silent and refuse, while a user has a connection by
// way of it: that ends with an error at both ends, as if the server had been killed. The agent says
// which proxy it was, goes on trying, and is back when the proxy is.
func TestProxiesThatFail(t *testing.T) {
	for mode, says := range map[string]string{"dead": "", "silent": context.DeadlineExceeded.Error(), "503 Service Unavailable": "503 Service Unavailable"} {
		t.Run(mode, func(t *testing.T) {
			f, s := startFakeServers(t, 1, "one")
			f.opens.Store(true)
			targets, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer targets.Close()
			s.dialer.decide = func(string, string) (policy.Target, error) {
				return policy.Target{Address: targets.Addr().String()}, nil
			}
			s.dialer.targetTimeout, s.dialer.handshakeTimeout = 10*time.Second, 500*time.Millisecond
			s.search.random = func(time.Duration) time.Duration { return time.Millisecond }
			proxy := startEgressProxy(t, s.dialer.address)
			s.dialer.address = "hub.example:8091"
			t.Setenv("HTTPS_PROXY", "http://"+proxy.Addr().String())
			looked := make(chan struct{})
			go func() {
				defer close(looked)
				s.run(s.connect)
			}()
			defer func() { s.close(); <-looked }()

			user, target := openThrough(t, <-f.sessions, targets)
			<-f.sessions // in the place of the one that carries the connection
			eventually(t, "the agent has it", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.known["one"].isListeningLocked()
			})
			proxy.become(mode)
			for end, conn := range map[string]net.Conn{"user": user, "target": target} {
				if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("the %s's connection ends with %v, want that it was cut off", end, err)
				}
				_ = conn.Close()
			}
			eventually(t, "the agent has no server, and goes on trying", func() bool { return s.countConnected() == 0 && proxy.asked.Load() > 1 })
			if _, err := s.dialer.dialSession(t.Context()); err == nil || !strings.Contains(err.Error(), `proxy "`+proxy.Addr().String()) || !strings.Contains(err.Error(), says) {
				t.Errorf("a dial fails with %v, want the proxy's name and %q", err, says)
			}
			proxy.become("works")
			user, target = openThrough(t, <-f.sessions, targets)
			_, _ = user.Close(), target.Close()
		})
	}
}

// openThrough has a server open a connection to the target, and moves a byte each way.
func openThrough(t *testing.T, session *carrier.Session, targets net.Listener) (user, target net.Conn) {
	t.Helper()
	eventually(t, "both know that an OPEN may come", session.Opens)
	user, err := session.Carrier().Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "x:1"})
	if err != nil {
		t.Fatal(err)
	}
	if target, err = targets.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, way := range [][2]net.Conn{{user, target}, {target, user}} {
		if _, err := way[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return user, target
}
