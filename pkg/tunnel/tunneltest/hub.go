package tunneltest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// DialFunc opens the connection that a dial through the tunnel stands for. The
// client gets the text of its error, with the code of a *tunnel.Error, or else
// tunnel.Unreachable.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Hub is a proxy server. Its methods may be called at any time.
type Hub struct {
	t       testing.TB
	tls     *tls.Config
	address string
	serving sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil after Stop
	conns    map[net.Conn]struct{}
	targets  map[string]DialFunc
	dials    map[string]int
	open     map[net.Conn]string // connections to targets, with the address that was dialed
}

// Start runs a hub without TLS until the test ends.
func Start(t testing.TB) *Hub { return StartTLS(t, nil) }

// StartTLS runs a hub with TLS until the test ends. It has config offer carriers.
func StartTLS(t testing.TB, config *tls.Config) *Hub {
	t.Helper()
	if config != nil {
		config.NextProtos = []string{carrier.ALPN}
	}
	h := &Hub{t: t, tls: config, address: "127.0.0.1:0",
		conns: map[net.Conn]struct{}{}, targets: map[string]DialFunc{}, dials: map[string]int{}, open: map[net.Conn]string{}}
	h.Resume()
	t.Cleanup(func() {
		h.Stop()
		h.serving.Wait()
	})
	return h
}

// Address is the host:port at which clients dial the hub. It survives Stop and
// Resume.
func (h *Hub) Address() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.address
}

// Dialer is a new Dialer for a hub without TLS. It is closed when the test
// ends.
func (h *Hub) Dialer() *tunnel.Dialer {
	d := &tunnel.Dialer{ProxyServer: h.Address()}
	h.t.Cleanup(func() { _ = d.Close() })
	return d
}

// Handle makes dial answer dials to address, which is <host>:<port>. Nil makes
// the hub forget the address: dials fail as if no agent were connected.
func (h *Hub) Handle(address string, dial DialFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dial == nil {
		delete(h.targets, address)
		return
	}
	h.targets[address] = dial
}

// Forward answers dials to address with TCP connections to target.
func (h *Hub) Forward(address, target string) {
	h.Handle(address, func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", target)
	})
}

// Dials is how many dials to address arrived.
func (h *Hub) Dials(address string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dials[address]
}

// Disconnect breaks the open connections to address as the proxy server does it
// when an agent goes away, and forgets address.
func (h *Hub) Disconnect(address string) {
	h.Handle(address, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	for target, dialed := range h.open {
		if dialed == address {
			_ = target.Close()
		}
	}
}

// Stop breaks all connections and refuses new ones, like a proxy server that
// crashed.
func (h *Hub) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener == nil {
		return
	}
	_ = h.listener.Close()
	h.listener = nil
	for conn := range h.conns {
		_ = conn.Close()
	}
}

// Resume serves again after Stop.
func (h *Hub) Resume() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil {
		return
	}
	listener, err := net.Listen("tcp", h.address)
	if err != nil {
		h.t.Fatalf("starting the hub: %v", err)
	}
	h.listener, h.address = listener, listener.Addr().String()
	h.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			h.serving.Go(func() { h.serve(listener, conn) })
		}
	})
}

// helloTimeout is how long a client may take for TLS and HELLO.
const helloTimeout = 10 * time.Second

// serve makes a carrier of a connection, and closes it when that ends.
func (h *Hub) serve(listener net.Listener, conn net.Conn) {
	defer conn.Close()
	h.mu.Lock()
	running := h.listener == listener
	if running {
		h.conns[conn] = struct{}{}
	}
	h.mu.Unlock()
	if !running {
		return
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.conns, conn)
	}()
	wire := conn
	if h.tls != nil {
		wire = tls.Server(conn, h.tls)
	}
	ctx, cancel := context.WithTimeout(context.Background(), helloTimeout)
	c, _, err := carrier.Accepted(ctx, wire, carrier.Config{Role: carrier.Acceptor, Name: "tunneltest", Handler: carrier.HandlerFunc(h.answer)})
	cancel()
	if err == nil {
		<-c.Done()
	}
}

// answer answers one dial, and carries what it opens.
func (h *Hub) answer(ctx context.Context, p *carrier.Pending) {
	target, err := h.dial(ctx, p.Address)
	if err != nil {
		_ = p.Refuse(refusal(err))
		return
	}
	conn, err := p.Accept(carrier.Endpoints{Local: "tunnel:0", Remote: p.Address})
	if err != nil {
		_ = target.Close()
		return
	}
	h.mu.Lock()
	h.open[target] = p.Address
	h.mu.Unlock()
	_ = carrier.Relay(conn, ending{target})
	h.mu.Lock()
	delete(h.open, target)
	h.mu.Unlock()
}

// dial counts a dial and connects to its target.
func (h *Hub) dial(ctx context.Context, address string) (net.Conn, error) {
	h.mu.Lock()
	h.dials[address]++
	dial := h.targets[address]
	h.mu.Unlock()
	if dial == nil {
		return nil, &carrier.Error{Code: carrier.NoAgent, Message: "No agent available"}
	}
	return dial(ctx)
}

// codes are those by which a proxy server refuses dials.
var codes = map[tunnel.Code]carrier.Code{
	tunnel.NoSuchCluster: carrier.NoSuchCluster, tunnel.NoAgent: carrier.NoAgent, tunnel.Denied: carrier.Denied, tunnel.Unreachable: carrier.Unreachable,
	tunnel.TimedOut: carrier.TimedOut, tunnel.Overloaded: carrier.Overloaded, tunnel.Draining: carrier.Draining,
}

// refusal returns what the client gets for the error of a DialFunc.
func refusal(err error) error {
	var typed *tunnel.Error
	switch {
	case errors.As(err, &typed):
		return &carrier.Error{Code: codes[typed.Code], Message: typed.Message}
	case errors.Is(err, context.DeadlineExceeded):
		return &carrier.Error{Code: carrier.TimedOut, Message: err.Error()}
	}
	return err
}

// ending closes a target that has no half close when the client has written everything.
type ending struct{ net.Conn }

// CloseWrite ends what the target reads.
func (e ending) CloseWrite() error { return dial.CloseWrite(e.Conn, e.Close) }

// NetConn returns the target, of which package dial knows the TCP connection.
func (e ending) NetConn() net.Conn { return e.Conn }
