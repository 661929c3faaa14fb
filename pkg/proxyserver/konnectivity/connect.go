package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// prefaceTimeout is how long a client may take for the first bytes of gRPC or HTTP
// after the TLS handshake.
const prefaceTimeout = 10 * time.Second

// connectFrontend serves HTTP CONNECT. net/http forgets connections that a
// handler took over, so it remembers them itself.
type connectFrontend struct {
	server *http.Server

	mu       sync.Mutex
	tunnels  map[net.Conn]struct{}
	draining bool
	idle     chan struct{} // closed when draining and without tunnels
}

type connKey struct{}

func newConnectFrontend(handler http.Handler) *connectFrontend {
	f := &connectFrontend{
		tunnels: map[net.Conn]struct{}{},
		idle:    make(chan struct{}),
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true) // CONNECT takes the connection over
	f.server = &http.Server{
		Handler:           f.track(handler),
		Protocols:         protocols,
		ReadHeaderTimeout: prefaceTimeout,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	return f
}

func (f *connectFrontend) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(net.Conn)
		f.mu.Lock()
		f.tunnels[conn] = struct{}{}
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.tunnels, conn)
			if f.draining && len(f.tunnels) == 0 {
				close(f.idle)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (f *connectFrontend) serve(listener net.Listener) error {
	if err := f.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving clients: %w", err)
	}
	return nil
}

func (f *connectFrontend) drain(ctx context.Context) bool {
	if err := f.server.Shutdown(ctx); err != nil {
		_ = f.server.Close()
	}
	f.mu.Lock()
	f.draining = true
	if len(f.tunnels) == 0 {
		f.mu.Unlock()
		return true
	}
	f.mu.Unlock()
	select {
	case <-f.idle:
		return true
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.tunnels {
		connect.Abort(conn)
	}
	return false
}
