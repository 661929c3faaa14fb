package tunnel

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// konnectivityTransport is the transport over konnectivity's ProxyService: one
// gRPC connection, one stream per dial.
type konnectivityTransport struct {
	tunnel konnectivity.ReusableTunnel
	server string
	nextID atomic.Uint64
	dials  sync.Map // dial id → *dialState, until the stream has taken it
}

// newKonnectivity makes the transport. It calls connecting, if that is set,
// whenever it connects to the proxy server.
func newKonnectivity(server string, tlsConfig func() *tls.Config, connecting func()) (transport, error) {
	t := &konnectivityTransport{server: server}
	// The peer's liveness is TCP's business here: konnectivity's server ends
	// connections whose gRPC pings come more often than every five minutes.
	dialer := &dial.StaleDialer{}
	creds := insecure.NewCredentials()
	if tlsConfig != nil {
		creds = reloading{config: tlsConfig}
	}
	// Without a blocking option this does no I/O.
	tunnel, err := konnectivity.CreateGRPCTunnel(context.Background(), server,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if connecting != nil {
				connecting()
			}
			conn, err := dialer.DialContext(ctx, address)
			if err != nil {
				return nil, err
			}
			return tuning.Tune(conn), nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithStreamInterceptor(t.intercept),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to proxy server %q: %w", server, err)
	}
	t.tunnel = tunnel
	return t, nil
}

func (t *konnectivityTransport) close() error { return t.tunnel.Close() }

func (t *konnectivityTransport) protocol() Protocol { return Konnectivity }

func (t *konnectivityTransport) dial(ctx context.Context, address string) (net.Conn, error) {
	w := &dialState{address: address, ready: make(chan struct{})}
	id := strconv.FormatUint(t.nextID.Add(1), 10)
	t.dials.Store(id, w)
	defer t.dials.Delete(id)
	raw, err := t.tunnel.DialContext(ctx, "tcp", id+" "+address)
	if err != nil {
		return nil, t.dialError(ctx, address, err)
	}
	// Only now does konnectivity's client know the connection.
	close(w.ready)
	return newConn(&konnectivityLink{raw: raw, dialState: w}, "tunnel:0", address), nil
}

func (t *konnectivityTransport) dialError(ctx context.Context, address string, err error) error {
	_, reason := konnectivity.GetDialFailureReason(err)
	switch reason {
	case metrics.DialFailureEndpoint:
		return fail(codeOf(agentapi.RefusalCode(err.Error())), address, err.Error(), nil)
	case metrics.DialFailureContext:
		return fail(TimedOut, address, "no answer from the cluster's agent in time", context.Cause(ctx))
	case metrics.DialFailureTimeout:
		return fail(TimedOut, address, "no answer from the cluster's agent in time", context.DeadlineExceeded)
	case metrics.DialFailureDialClosed:
		return fail(Lost, address, "the proxy server gave up the dial", nil)
	case metrics.DialFailureTunnelClosed:
		return fail(Lost, address, "the connection to the proxy server broke during the dial", nil)
	}
	if ctx.Err() != nil {
		return fail(TimedOut, address, "proxy server "+t.server+" does not answer", ctx.Err())
	}
	return fail(NoProxyServer, address, fmt.Sprintf("proxy server %q: %v", t.server, err), err)
}

// dialState is what the stream below a connection shows that konnectivity's client
// does not pass on. It is written by the stream's reading goroutine.
type dialState struct {
	address string
	// ready is closed when konnectivity's client has registered the
	// connection. It would drop data of targets that speak first otherwise.
	ready  chan struct{}
	mu     sync.Mutex
	cancel context.CancelFunc
	clean  bool  // a CLOSE_RSP without an error came
	err    error // how the stream ended otherwise
}

func (w *dialState) end(clean bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.clean && w.err == nil {
		w.clean, w.err = clean, err
	}
}

// eof is what a reader gets after the last byte.
func (w *dialState) eof() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.clean:
		return io.EOF
	case w.err != nil:
		return fail(Lost, w.address, w.err.Error(), nil)
	}
	return fail(Lost, w.address, "the reader was too slow, or the Dialer was closed", nil)
}

// abort ends the stream.
func (w *dialState) abort() {
	w.mu.Lock()
	cancel := w.cancel
	w.mu.Unlock()
	cancel()
}

// konnectivityLink makes a conn's link out of konnectivity's connection.
type konnectivityLink struct {
	raw net.Conn
	*dialState
}

func (l *konnectivityLink) Read(p []byte) (int, error) {
	n, err := l.raw.Read(p)
	if err == io.EOF {
		err = l.eof()
	}
	return n, err
}

func (l *konnectivityLink) Write(p []byte) (int, error) { return l.raw.Write(p) }

// finish asks the agent to close and waits for its answer. The error would say
// that there was none, which no longer matters.
func (l *konnectivityLink) finish() { _ = l.raw.Close() }

// reloading are TLS credentials that are made anew for each connection.
type reloading struct{ config func() *tls.Config }

func (r reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := r.config()
	if config == nil {
		return nil, nil, fmt.Errorf("no TLS configuration for proxy server %q", authority)
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (r reloading) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("these are credentials of a client")
}

func (r reloading) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (r reloading) Clone() credentials.TransportCredentials { return r }

func (r reloading) OverrideServerName(string) error { return nil }

// takeDial splits the address of a dial request into the dial's state and the
// address to ask for.
func (t *konnectivityTransport) takeDial(tagged string) (*dialState, string, error) {
	id, address, _ := strings.Cut(tagged, " ")
	w, ok := t.dials.LoadAndDelete(id)
	if !ok {
		return nil, "", fmt.Errorf("dial request %q belongs to no dial", tagged)
	}
	return w.(*dialState), address, nil
}
