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
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// DefaultDialTimeout is how long a dial may take from end to end.
const DefaultDialTimeout = 15 * time.Second

// tuning detects a proxy server that is gone silently within 30 s, whether anything is
// under way to it or not.
var tuning = dial.TCP{KeepAlive: 15 * time.Second, UserTimeout: 25 * time.Second}

// maxConnections is about what one address can have to another.
const maxConnections = 60000

// carriers opens connections on carriers, which are kept ready.
type carriers struct {
	server string
	// address returns where to connect.
	address func() string
	config  func() *tls.Config // nil means no TLS
	tcp     dial.TCP
	dialer  dial.StaleDialer
	pool    *pool.Pool
	// reach makes a carrier.
	reach func(context.Context) (*carrier.Carrier, error)

	mu      sync.Mutex
	lastErr error // of the newest attempt to reach the proxy server; nil after a success
}

func newCarriers(server string, config func() *tls.Config) *carriers {
	t := &carriers{server: server, address: func() string { return server }, config: config, tcp: tuning}
	t.reach = t.handshake
	t.pool = pool.New(pool.Config{
		Dial: t.dialCarrier,
		// These limits are for all clusters together; the proxy server limits each
		// agent.
		Max: maxConnections, MaxPending: maxConnections,
		// A caller waits.
		Backoff: func(failures int) time.Duration { return min(dial.FullJitter(failures), 3*time.Second) },
	})
	return t
}

// dialCarrier makes one carrier.
func (t *carriers) dialCarrier(ctx context.Context) (*carrier.Carrier, error) {
	made, err := t.reach(ctx)
	if context.Cause(ctx) == nil { // otherwise it was given up, and says nothing of the proxy server
		t.mu.Lock()
		t.lastErr = err
		t.mu.Unlock()
	}
	return made, err
}

func (t *carriers) handshake(ctx context.Context) (*carrier.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultDialTimeout)
	defer cancel()
	raw, err := t.dialer.DialContext(ctx, t.address())
	if err != nil {
		return nil, err
	}
	raw = t.tcp.Tune(raw)
	if t.config == nil {
		return carrier.Dialed(ctx, raw, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
	}
	config, err := t.tlsConfig()
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return carrier.DialTLS(ctx, raw, config, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
}

func (t *carriers) tlsConfig() (*tls.Config, error) {
	config := t.config()
	if config == nil {
		return nil, fmt.Errorf("no TLS configuration for proxy server %q", t.server)
	}
	config = config.Clone()
	config.NextProtos = []string{carrier.ALPN, "h2"} // by the latter a server without carriers is told apart
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(t.server)
		if err != nil {
			return nil, fmt.Errorf("parsing proxy server address: %w", err)
		}
		config.ServerName = host
	}
	return config, nil
}

// dial connects to a TCP address. Its errors are *Error.
func (t *carriers) dial(ctx context.Context, address string) (net.Conn, error) {
	request := carrier.OpenRequest{Network: "tcp", Address: address}
	if deadline, ok := ctx.Deadline(); ok {
		request.Timeout = time.Until(deadline)
	}
	conn, err := t.pool.Open(ctx, request)
	if err != nil {
		return nil, t.dialError(ctx, address, err)
	}
	return &carrierConn{Conn: conn, address: address}, nil
}

func (t *carriers) dialError(ctx context.Context, address string, err error) error {
	t.mu.Lock()
	unreachable := t.lastErr
	t.mu.Unlock()
	if errors.Is(ctx.Err(), context.Canceled) { // whatever the caller says is the cause
		return fail(Canceled, address, "the dial was canceled", context.Cause(ctx))
	}
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

// carrierConn returns the errors of this package.
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

// IsUnacknowledged reports whether the proxy server has not acknowledged something that was
// sent.
func (c *carrierConn) IsUnacknowledged() bool {
	return dial.IsUnacknowledged(c.Carrier().Transport())
}

// mapped leaves alone what callers know: the end, deadlines, their own Close.
func (c *carrierConn) mapped(err error) error {
	var broken *carrier.Error
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &broken) {
		return err
	}
	return fail(Lost, c.address, broken.Error(), err)
}
