package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/pkg/server/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
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

// admitHTTPClient is interceptClient for HTTP CONNECT.
func (s *Server) admitHTTPClient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.core.AdmitClient(r.Context().Value(connKey{}).(*tls.Conn)); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// connectOverCarriers serves HTTP CONNECT for agents with carriers, and leaves
// the rest to next.
func (s *Server) connectOverCarriers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.core.Overloaded(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if r.Method != http.MethodConnect || s.overStream(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		metrics.Metrics.HTTPConnectionInc()
		defer metrics.Metrics.HTTPConnectionDec()
		ctx, cancel := context.WithTimeout(r.Context(), s.options.DialTimeout)
		conn, err := s.core.Open(ctx, carrier.OpenRequest{Network: "tcp", Address: r.Host})
		cancel()
		if err != nil {
			writeConnectError(w, err)
			return
		}
		defer conn.Close()
		// Relay does not count.
		defer s.core.BeginConnection(r.Context().Value(connKey{}).(*tls.Conn), r.Host)(-1, -1)
		raw, err := connect.Accept(w, r)
		if err != nil {
			conn.Abort(err)
			if !errors.Is(err, http.ErrAbortHandler) {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
			return
		}
		_ = carrier.Relay(conn, raw.(net.Conn)) // the frontend speaks HTTP/1.1 only
	})
}

func writeConnectError(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	switch carrier.CodeOf(err) {
	case 0, carrier.NoAgent, carrier.NoSuchCluster, carrier.Overloaded, carrier.Draining:
		code = http.StatusServiceUnavailable
	case carrier.TimedOut:
		code = http.StatusGatewayTimeout
	case carrier.Denied:
		code = http.StatusForbidden
	}
	http.Error(w, errorText(err), code)
}
