package tunneltest

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// DialFunc opens the connection that a dial through the tunnel stands for. The
// text of its error is what the client gets to see, as it is with an agent.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Hub is a proxy server. Its methods may be called at any time.
type Hub struct {
	t       testing.TB
	tls     *tls.Config
	address string

	mu      sync.Mutex
	server  *grpc.Server
	targets map[string]DialFunc
	dials   map[string]int
	streams map[*stream]struct{}
}

// Start runs a hub without TLS until the test ends.
func Start(t testing.TB) *Hub { return StartTLS(t, nil) }

// StartTLS runs a hub with TLS until the test ends.
func StartTLS(t testing.TB, config *tls.Config) *Hub {
	t.Helper()
	h := &Hub{t: t, tls: config, address: "127.0.0.1:0",
		targets: map[string]DialFunc{}, dials: map[string]int{}, streams: map[*stream]struct{}{}}
	h.Resume()
	t.Cleanup(h.Stop)
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

// Disconnect ends the open connections to address as the proxy server does it
// when an agent goes away, and forgets address.
func (h *Hub) Disconnect(address string) {
	h.Handle(address, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		if s.address == address {
			_ = s.target.Close()
		}
	}
}

// Stop breaks all connections and refuses new ones, like a proxy server that
// crashed.
func (h *Hub) Stop() {
	h.mu.Lock()
	server := h.server
	h.server = nil
	h.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Resume serves again after Stop.
func (h *Hub) Resume() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		return
	}
	listener, err := net.Listen("tcp", h.address)
	if err != nil {
		h.t.Fatalf("starting the hub: %v", err)
	}
	var options []grpc.ServerOption
	if h.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(h.tls)))
	}
	h.address = listener.Addr().String()
	h.server = grpc.NewServer(options...)
	client.RegisterProxyServiceServer(h.server, proxyService{h})
	go func(server *grpc.Server) {
		if err := server.Serve(listener); err != nil {
			h.t.Errorf("serving the hub: %v", err)
		}
	}(h.server)
}

// open counts a dial and connects to its target.
func (h *Hub) open(ctx context.Context, address string) (net.Conn, error) {
	h.mu.Lock()
	h.dials[address]++
	dial := h.targets[address]
	h.mu.Unlock()
	if dial == nil {
		return nil, errNoAgent
	}
	return dial(ctx)
}

func (h *Hub) add(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[s] = struct{}{}
}

func (h *Hub) remove(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
}
