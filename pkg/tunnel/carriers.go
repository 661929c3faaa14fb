package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/staledial"
)

// keepAlive finds a proxy server that is gone without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// maxConnections is about what one address can have to another.
const maxConnections = 60000

// errNoCarriers says that the proxy server is konnectivity's own.
var errNoCarriers = errors.New("the proxy server does not speak carriers")

// carrierTransport opens connections on carriers, which are kept ready. If the
// proxy server turns out not to speak them, it hands over to konnectivity's
// protocol for good: a Dialer does not outlive a downgrade of the hub by much,
// and an upgrade is taken up when the next one is made.
type carrierTransport struct {
	server string
	config func() *tls.Config
	dialer staledial.Dialer
	pool   *carrier.Pool

	mu       sync.Mutex
	lastErr  error     // of the newest attempt to reach the proxy server; nil after a success
	fallback transport // konnectivity's, once it is known to be needed
}

func newCarriers(server string, config func() *tls.Config) *carrierTransport {
	t := &carrierTransport{server: server, config: config}
	t.dialer.KeepAliveConfig = keepAlive
	t.pool = carrier.NewPool(carrier.PoolConfig{
		Dial: t.dialCarrier,
		// These are for all clusters together; what one agent may have is for the
		// proxy server to say.
		Max: maxConnections, MaxPending: maxConnections,
		// Without a single carrier, a failed attempt to make one is the answer:
		// there is no proxy server, or it is konnectivity's.
		FailAlone: true,
		// A caller waits: a second attempt must not be half a minute away.
		Backoff: func(failures int) time.Duration { return min(carrier.FullJitter(failures), 3*time.Second) },
	})
	return t
}

// dialCarrier makes one carrier, or finds out that there are none to be had.
func (t *carrierTransport) dialCarrier(ctx context.Context) (*carrier.Carrier, error) {
	made, err := t.handshake(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastErr = err
	if err == nil {
		return made, nil
	}
	if errors.Is(err, errNoCarriers) && t.fallback == nil {
		if other, otherErr := newKonnectivity(t.server, t.config); otherErr == nil {
			t.fallback = other
			// Close waits for this very attempt.
			go func() { _ = t.pool.Close() }()
		}
	}
	return nil, err
}

func (t *carrierTransport) handshake(ctx context.Context) (*carrier.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultDialTimeout)
	defer cancel()
	config := t.config()
	if config == nil {
		return nil, fmt.Errorf("no TLS configuration for proxy server %q", t.server)
	}
	config = config.Clone()
	config.NextProtos = []string{carrier.ALPN, "h2"}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(t.server)
		if err != nil {
			return nil, fmt.Errorf("parsing proxy server address: %w", err)
		}
		config.ServerName = host
	}
	raw, err := t.dialer.DialContext(ctx, t.server)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != carrier.ALPN {
		_ = conn.Close()
		return nil, errNoCarriers
	}
	return carrier.Dialed(ctx, conn, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
}

func (t *carrierTransport) dial(ctx context.Context, address string) (net.Conn, error) {
	if other := t.other(); other != nil {
		return other.dial(ctx, address)
	}
	request := carrier.OpenRequest{Network: "tcp", Address: address}
	if deadline, ok := ctx.Deadline(); ok {
		request.Timeout = time.Until(deadline)
	}
	conn, err := t.pool.Open(ctx, request)
	if err == nil {
		return &carrierConn{Conn: conn, address: address}, nil
	}
	if other := t.other(); other != nil {
		return other.dial(ctx, address)
	}
	return nil, t.dialError(ctx, address, err)
}

func (t *carrierTransport) other() transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fallback
}

func (t *carrierTransport) dialError(ctx context.Context, address string, err error) error {
	t.mu.Lock()
	unreachable := t.lastErr
	t.mu.Unlock()
	if stats := t.pool.Stats(); unreachable != nil && stats.Idle+stats.InUse == 0 {
		return fail(NoProxyServer, address, fmt.Sprintf("proxy server %q: %v", t.server, unreachable), unreachable)
	}
	if ctx.Err() != nil {
		return fail(TimedOut, address, "no answer from the cluster's agent in time", context.Cause(ctx))
	}
	var refused *carrier.Error
	if errors.As(err, &refused) {
		return fail(codeOf(refused.Code), address, refused.Message, err)
	}
	return fail(Lost, address, err.Error(), err)
}

func codeOf(code carrier.Code) Code {
	switch code {
	case carrier.NoSuchCluster:
		return NoSuchCluster
	case carrier.NoAgent:
		return NoAgent
	case carrier.Denied:
		return Denied
	case carrier.Unreachable, carrier.Refused:
		return Unreachable
	case carrier.TimedOut:
		return TimedOut
	case carrier.Overloaded:
		return Overloaded
	case carrier.Draining:
		return Draining
	}
	return Lost
}

func (t *carrierTransport) close() error {
	t.mu.Lock()
	other := t.fallback
	t.mu.Unlock()
	err := t.pool.Close()
	if other != nil {
		err = errors.Join(err, other.close())
	}
	return err
}

// carrierConn gives the errors of this package.
type carrierConn struct {
	*carrier.Conn
	address string
}

func (c *carrierConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.mapped(err)
}

func (c *carrierConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.mapped(err)
}

func (c *carrierConn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.Conn.WriteTo(w)
	return n, c.mapped(err)
}

func (c *carrierConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.Conn.ReadFrom(r)
	return n, c.mapped(err)
}

// mapped leaves alone what callers know: the end, deadlines, their own Close.
func (c *carrierConn) mapped(err error) error {
	var broken *carrier.Error
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) || !errors.As(err, &broken) {
		return err
	}
	return fail(Lost, c.address, broken.Error(), err)
}
