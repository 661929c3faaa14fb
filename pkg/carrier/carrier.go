package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Role says which side of a carrier sends OPEN. It does not depend on who
// dialed the TCP connection.
type Role int

const (
	// Opener sends OPEN.
	Opener Role = iota
	// Acceptor answers OPEN.
	Acceptor
)

// Config of a carrier. The zero value is an opener with the defaults.
type Config struct {
	Role Role
	// Handler answers OPEN; an Acceptor needs one.
	Handler Handler
	// Relays says that an opener's connections are given to Splice or Relay: the
	// watcher then reads until the first frame, and copies what follows itself.
	Relays bool
	// Linger bounds how long a connection that was closed waits for the peer's
	// FIN once its own is sent. Default 1 s.
	Linger time.Duration
	// Name is what Accepted calls this side in its answer.
	Name string
}

// Handler answers one OPEN by Accept or Refuse, in a goroutine of its own, and
// may stay with the connection. A request that it did not answer when it returns
// is refused. The context ends with the request's timeout, when the opener gives
// up, and when ServeOpen returns; an accepted connection outlives it.
type Handler interface {
	ServeOpen(ctx context.Context, p *Pending)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, p *Pending)

// ServeOpen is part of Handler.
func (f HandlerFunc) ServeOpen(ctx context.Context, p *Pending) { f(ctx, p) }

// Observer is called when the state of a carrier changes, never while a lock is held:
// the carrier may have changed again since.
type Observer interface {
	CarrierIdle(*Carrier)
	CarrierBusy(*Carrier)
	CarrierClosed(*Carrier)
}

type state int

const (
	idle    state = iota
	opening       // opener: OPEN sent, no answer yet
	pending       // acceptor: OPEN received, not answered yet
	open          // data may flow
	closed
)

// Carrier is one transport connection that carries one tunnelled connection
// at a time. Methods may be called from several goroutines.
type Carrier struct {
	nc      net.Conn
	cfg     Config
	peer    string        // the accepting side's name, on the dialing side
	session *Session      // nil unless the carrier was, or is, a control session
	done    chan struct{} // closed when the carrier is closed
	gone    chan struct{} // closed when the transport is closed, too

	mu       sync.Mutex
	state    state
	cur      *Conn          // state open
	reply    chan openReply // state opening
	pend     *Pending       // state pending
	err      error          // state closed
	draining bool
	asked    bool // an OPEN has come
	unsent   bool // the last FIN of a connection is being written, though it is over
	watching bool // the watcher has rsem, or is about to be started with it
	observer Observer
	unused   chan struct{} // closed when idle; nil unless WaitIdle waits

	// The holder of rsem may read from nc, and owns the fields below. While no
	// tunnelled connection reads, the watcher holds it.
	rsem   chan struct{}
	small  [smallBuffer]byte
	lo, hi int
	rem    int // bytes of the current DATA frame not yet read

	// The holder of wsem may write to nc.
	wsem  chan struct{}
	wpend []byte // rest of a frame whose write timed out
	wrem  int    // bytes of the DATA frame that Splice is forwarding
}

type openReply struct {
	conn *Conn
	err  error
}

// Dialed makes a carrier of a transport that this side dialed: it sends HELLO,
// and waits for the answer. A handshake must be
// complete or must complete by itself when written to. With an error the
// transport is closed.
func Dialed(ctx context.Context, nc net.Conn, hello Hello, cfg Config) (*Carrier, error) {
	if err := writeHello(ctx, nc, hello); err != nil {
		return nil, err
	}
	answer, err := ReadHello(ctx, nc)
	if err != nil {
		return nil, err
	}
	c := newCarrierStopped(nc, cfg)
	c.peer = answer.Session
	go c.watch()
	return c, nil
}

// Accepted makes a carrier of a transport that the peer dialed: it waits for
// HELLO, and answers it, as long as ctx allows. With an error the transport is closed.
func Accepted(ctx context.Context, nc net.Conn, cfg Config) (*Carrier, Hello, error) {
	hello, err := ReadHello(ctx, nc)
	if err != nil {
		return nil, Hello{}, err
	}
	c, err := Answer(ctx, nc, cfg)
	return c, hello, err
}

// ReadHello waits for HELLO on a transport that the peer dialed, as long as ctx
// allows. With an error the transport is closed.
func ReadHello(ctx context.Context, nc net.Conn) (Hello, error) {
	stop := interruptOn(ctx, nc)
	hello, err := readHello(nc)
	if !stop() {
		err = ContextError(ctx)
	}
	if err != nil {
		_ = nc.Close()
		return Hello{}, cutOff(err)
	}
	return hello, nil
}

// Answer makes a carrier of a transport from which HELLO was read, and answers it, as long as
// ctx allows. With an error the transport is closed.
func Answer(ctx context.Context, nc net.Conn, cfg Config) (*Carrier, error) {
	if err := writeHello(ctx, nc, Hello{Session: cfg.Name}); err != nil {
		return nil, err
	}
	c := newCarrierStopped(nc, cfg)
	go c.watch()
	return c, nil
}

// writeHello sends HELLO as long as ctx allows. With an error the transport is closed.
func writeHello(ctx context.Context, nc net.Conn, hello Hello) error {
	hello.Version = Version
	frame := controlFrame(FrameHello, hello.append)
	if len(frame) > smallBuffer {
		_ = nc.Close()
		return violation("HELLO is longer than %d bytes", smallBuffer)
	}
	stop := interruptOn(ctx, nc)
	_, err := nc.Write(frame)
	if !stop() {
		err = ContextError(ctx)
	}
	if err != nil {
		_ = nc.Close()
		return cutOff(err)
	}
	return nil
}

// interruptOn makes I/O on nc fail when ctx ends. The function it returns stops that
// and reports whether ctx had not ended.
func interruptOn(ctx context.Context, nc net.Conn) func() bool {
	return context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
}

// readHello reads the first frame and nothing beyond it.
func readHello(nc net.Conn) (Hello, error) {
	t, payload, err := readFrame(nc)
	switch {
	case err != nil:
		return Hello{}, err
	case t == FrameReset:
		e, err := decodeError(payload, true)
		if err != nil {
			return Hello{}, violation("%v", err)
		}
		return Hello{}, e
	case t != FrameHello:
		return Hello{}, violation("first frame is of type %d", t)
	}
	hello, err := decodeHello(payload)
	if err == nil && hello.Version < Version {
		err = errors.New("HELLO with an older version")
	}
	return hello, err
}

// readFrame reads a whole frame that is not DATA.
func readFrame(nc net.Conn) (FrameType, []byte, error) {
	header := make([]byte, HeaderSize)
	if _, err := io.ReadFull(nc, header); err != nil {
		return 0, nil, err
	}
	t, n, err := ParseHeader(header)
	if err != nil {
		return 0, nil, violation("%v", err)
	}
	if t == FrameData {
		return 0, nil, violation("DATA out of place")
	}
	payload := make([]byte, n)
	_, err = io.ReadFull(nc, payload)
	return t, payload, err
}

func newCarrierStopped(nc net.Conn, cfg Config) *Carrier {
	if cfg.Linger == 0 {
		cfg.Linger = time.Second
	}
	c := &Carrier{
		nc: nc, cfg: cfg,
		done: make(chan struct{}), gone: make(chan struct{}),
		rsem: make(chan struct{}, 1), wsem: make(chan struct{}, 1),
	}
	c.rsem <- struct{}{} // for the watcher
	c.watching = true
	return c
}

// Observe sets the carrier's observer from now on.
func (c *Carrier) Observe(o Observer) {
	c.mu.Lock()
	c.observer = o
	c.mu.Unlock()
}

// Transport returns the connection that the carrier runs on, for its addresses
// and its TLS state.
func (c *Carrier) Transport() net.Conn { return c.nc }

// Role says which side of the carrier this is.
func (c *Carrier) Role() Role { return c.cfg.Role }

// PeerName is what the accepting side calls itself, on the side that dialed.
func (c *Carrier) PeerName() string { return c.peer }

// InSession reports whether the carrier is a control session still. To take it costs the
// peer another one, so others are taken first.
func (c *Carrier) InSession() bool { return c.session != nil && !c.session.Over() }

// BeganAsSession reports whether the carrier was a control session at first.
func (c *Carrier) BeganAsSession() bool { return c.session != nil }

// WasAsked reports whether an OPEN has come. A RESET after that may be a client's, which relays
// pass on as it is, and says nothing about the peer itself.
func (c *Carrier) WasAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// Done is closed when the carrier can carry nothing any more.
func (c *Carrier) Done() <-chan struct{} { return c.done }

// Err says why the carrier was closed, and nil before.
func (c *Carrier) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Drain makes the carrier refuse what is not open yet. An opener's carrier
// closes as soon as it is idle; an acceptor's stays to answer with REFUSE.
func (c *Carrier) Drain() {
	c.mu.Lock()
	c.draining = true
	idleOpener := c.rests() && c.cfg.Role == Opener
	c.mu.Unlock()
	if idleOpener {
		c.fail(errDraining, keepQuiet)
	}
}

var errDraining = &Error{Code: Draining, Message: "the carrier is drained"}

// Open asks the peer for a connection and waits for the answer. A REFUSE is an
// *Error and leaves the carrier idle. When ctx ends first, the carrier is
// closed with RESET, so that a late answer cannot be taken for that of the next
// OPEN.
func (c *Carrier) Open(ctx context.Context, r OpenRequest) (*Conn, error) {
	frame := controlFrame(FrameOpen, r.append)
	if len(frame) > smallBuffer || c.cfg.Role != Opener || !c.session.takesOpen() {
		c.tellIdle() // who took the carrier for this does not know that it is idle still
		return nil, violation("cannot send OPEN with %d bytes", len(frame))
	}
	if ctx.Err() != nil {
		c.tellIdle()
		return nil, ContextError(ctx)
	}
	reply := make(chan openReply, 1)
	if err := c.startOpening(reply, r.Network); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.failOpening(reply, ContextError(ctx)) })
	defer stop()
	if err := c.writeControl(frame); err != nil {
		c.fail(cutOff(err), keepQuiet)
	}
	answer := <-reply
	return answer.conn, answer.err
}

func (c *Carrier) startOpening(reply chan openReply, network string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == closed:
		return c.err
	case c.draining:
		return errDraining
	case c.state != idle:
		return &Error{Code: Overloaded, Message: "the carrier is in use"}
	}
	c.state, c.reply = opening, reply
	c.session.opened(network, Opener)
	return nil
}

func (c *Carrier) failOpening(reply chan openReply, err *Error) {
	c.mu.Lock()
	mine := c.state == opening && c.reply == reply
	c.mu.Unlock()
	if mine {
		c.failIf(func() bool { return c.state == opening && c.reply == reply }, err, tellPeer)
	}
}

// ErrNoCarriers is the error of DialTLS if ALPN did not select carriers: the peer
// is a proxy server of konnectivity's, or no proxy server at all.
var ErrNoCarriers = errors.New("the proxy server does not speak carriers")

// DialTLS makes a carrier of a connection that this side dialed: it makes the TLS
// handshake, checks that ALPN selected carriers, and sends HELLO. The config must
// name ALPN in NextProtos. The error of the handshake is that of crypto/tls. With
// an error the connection is closed.
func DialTLS(ctx context.Context, raw net.Conn, config *tls.Config, hello Hello, cfg Config) (*Carrier, error) {
	conn, err := ShakeHands(ctx, raw, config)
	if err != nil {
		return nil, err
	}
	return Dialed(ctx, conn, hello, cfg)
}

// ShakeHands is the first part of DialTLS: it makes the TLS handshake and checks that
// ALPN selected carriers. With an error the connection is closed.
func ShakeHands(ctx context.Context, raw net.Conn, config *tls.Config) (*tls.Conn, error) {
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != ALPN {
		_ = conn.Close()
		return nil, ErrNoCarriers
	}
	return conn, nil
}
