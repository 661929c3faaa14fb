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

// tuning detects a proxy server that is gone silently within 30 s, whether anything is
// under way to it or not.
var tuning = dial.TCP{KeepAlive: 15 * time.Second, UserTimeout: 25 * time.Second}

// carriersAgain is after what time a proxy server that did not speak carriers is
// tried again.
const carriersAgain = 30 * time.Second

// maxConnections is about what one address can have to another.
const maxConnections = 60000

// carrierTransport opens connections on carriers, which are kept ready. While the proxy
// server does not speak them, it uses konnectivity's protocol. The pool keeps trying
// meanwhile, so that no dial waits for the discovery that the hub was upgraded.
type carrierTransport struct {
	server string
	// address is where to connect.
	address func() string
	config  func() *tls.Config
	tcp     dial.TCP
	dialer  dial.StaleDialer
	pool    *pool.Pool
	// reach makes a carrier, and older makes the transport for a proxy server that
	// does not speak them.
	reach func(context.Context) (*carrier.Carrier, error)
	older func() (transport, error)

	mu       sync.Mutex
	lastErr  error     // of the newest attempt to reach the proxy server; nil after a success
	old      bool      // the newest attempt met konnectivity's server
	spoken   Protocol  // the last one by which a dial succeeded
	fallback transport // konnectivity's, once it is known to be needed
}

func newCarriers(server string, config func() *tls.Config) *carrierTransport {
	t := &carrierTransport{server: server, address: func() string { return server }, config: config, tcp: tuning}
	t.reach = t.handshake
	t.older = func() (transport, error) { return newKonnectivity(server, config, t.lookAgain) }
	t.pool = pool.New(pool.Config{
		Dial: t.dialCarrier,
		// These limits are for all clusters together; the proxy server limits each
		// agent.
		Max: maxConnections, MaxPending: maxConnections,
		// Without a single carrier, a failed attempt to make one is the answer:
		// there is no proxy server, or it is konnectivity's.
		FailAlone: true,
		Backoff:   t.backoff,
		// One address leads to any of the proxy servers.
		Hedge: true,
	})
	return t
}

// dialCarrier makes one carrier, or finds out that the proxy server does not speak
// carriers.
func (t *carrierTransport) dialCarrier(ctx context.Context) (*carrier.Carrier, error) {
	made, err := t.reach(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if context.Cause(ctx) != nil {
		return made, err // it was given up, and says nothing of the proxy server
	}
	t.lastErr, t.old = err, errors.Is(err, carrier.ErrNoCarriers)
	if t.old && t.fallback == nil {
		other, otherErr := t.older()
		if otherErr != nil {
			t.old = false
			return nil, otherErr
		}
		t.fallback = other
	}
	return made, err
}

// surelyOld is how many konnectivity servers in a row mean that there are no others.
const surelyOld = 5

// backoff is short, as a caller waits, unless all proxy servers are konnectivity's:
// those who dial have their transport then.
func (t *carrierTransport) backoff(failures int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.old && failures > surelyOld {
		return carriersAgain
	}
	return min(dial.FullJitter(failures), 3*time.Second)
}

// lookAgain is called when konnectivity's transport connects, perhaps to a proxy
// server that took the place of the one before.
func (t *carrierTransport) lookAgain() { t.pool.Request(1) }

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
	raw, err := t.dialer.DialContext(ctx, t.address())
	if err != nil {
		return nil, err
	}
	raw = t.tcp.Tune(raw)
	// The name tells the pool which carriers lead to a silent server.
	hello := carrier.Hello{Features: []string{carrier.FeatureName}}
	return carrier.DialTLS(ctx, raw, config, hello, carrier.Config{Role: carrier.Opener})
}

func (t *carrierTransport) dial(ctx context.Context, address string) (net.Conn, error) {
	if other := t.other(); other != nil {
		return t.dialOther(ctx, other, address)
	}
	request := carrier.OpenRequest{Network: "tcp", Address: address}
	if deadline, ok := ctx.Deadline(); ok {
		request.Timeout = time.Until(deadline)
	}
	conn, err := t.pool.Open(ctx, request)
	if err == nil {
		t.speaks(Carriers)
		return &carrierConn{Conn: conn, address: address}, nil
	}
	if other := t.other(); other != nil {
		return t.dialOther(ctx, other, address)
	}
	return nil, t.dialError(ctx, address, err)
}

func (t *carrierTransport) dialOther(ctx context.Context, other transport, address string) (net.Conn, error) {
	conn, err := other.dial(ctx, address)
	if err == nil {
		t.speaks(Konnectivity)
	}
	return conn, err
}

// other returns konnectivity's transport if it is the only way: there is no carrier,
// and the newest attempt to make one met a server that does not speak carriers.
func (t *carrierTransport) other() transport {
	idle := t.pool.Stats().Idle
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.old || idle > 0 {
		return nil
	}
	return t.fallback
}

func (t *carrierTransport) speaks(p Protocol) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spoken = p
}

func (t *carrierTransport) protocol() Protocol {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spoken
}

func (t *carrierTransport) dialError(ctx context.Context, address string, err error) error {
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
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) || !errors.As(err, &broken) {
		return err
	}
	return fail(Lost, c.address, broken.Error(), err)
}
