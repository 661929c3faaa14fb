package main

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
)

// balancer spreads agents' connections over the proxy servers, as a load balancer that keeps
// their source addresses: the address at which an agent's connection arrives is the one from
// which it goes on.
type balancer struct {
	mu       sync.Mutex
	backends []string
	next     int
	alive    context.Context // of the connections that there are
	cut      context.CancelFunc
}

func serveBalancer(ctx context.Context, spec childSpec) (func(request) (report, error), error) {
	b := &balancer{}
	b.alive, b.cut = context.WithCancel(ctx)
	for _, address := range spec.Addresses {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(spec.Port)))
		if err != nil {
			return nil, err
		}
		go b.serve(ctx, listener)
	}
	return func(r request) (report, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if r.Backends != nil {
			b.backends = r.Backends
		}
		if r.Cut {
			b.cut()
			b.alive, b.cut = context.WithCancel(ctx)
		}
		return report{}, nil
	}, nil
}

func (b *balancer) serve(ctx context.Context, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go b.forward(ctx, conn.(*net.TCPConn))
	}
}

// forward tries every proxy server once, beginning with the one whose turn it is.
func (b *balancer) forward(ctx context.Context, agent *net.TCPConn) {
	defer agent.Close()
	b.mu.Lock()
	backends, alive := b.backends, b.alive
	b.next++
	first := b.next
	b.mu.Unlock()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: agent.LocalAddr().(*net.TCPAddr).IP}}
	for i := range backends {
		conn, err := dialer.DialContext(ctx, "tcp", backends[(first+i)%len(backends)])
		if err != nil {
			continue
		}
		server := conn.(*net.TCPConn)
		defer server.Close()
		defer context.AfterFunc(alive, func() {
			_, _ = agent.SetLinger(0), server.SetLinger(0)
			_, _ = agent.Close(), server.Close()
		})()
		done := make(chan struct{})
		go func() {
			defer close(done)
			pass(server, agent)
		}()
		pass(agent, server)
		<-done
		return
	}
}

// pass hides that both are sockets: the kernel would splice them through a pipe, which takes
// four more files a connection.
func pass(to, from *net.TCPConn) {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 4<<10))
	if err != nil {
		_ = to.SetLinger(0)
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.CloseWrite()
}
