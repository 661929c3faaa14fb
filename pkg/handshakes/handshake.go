package handshakes

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// flightSize is how much of a flight is read at a time: more than a ClientHello
// with a session ticket has, or a client's certificate with an elliptic key.
const flightSize = 4 << 10

// queueTimeouts bounds the wait for the first turn, in handshake timeouts. A
// peer's own limit is about one.
const queueTimeouts = 2

// Options of a Port.
type Options struct {
	// Config is that of a TLS server.
	Config *tls.Config
	// Limit is how many handshakes are worked on at a time.
	Limit int
	// Rest sets how long a turn stays unused after it was returned: Rest times as long
	// as it was held. It leaves the processor to others, on machines of any speed.
	Rest int
	// Timeout is how long a peer may take to send something, and then for the handshake
	// from the first turn on.
	Timeout time.Duration
	// Dropped is called for each connection that had to make room for another one:
	// reason is source if its source had too many, or all.
	Dropped func(reason string)
}

// Port makes the handshakes of the connections to a port.
type Port struct {
	options Options
	turns   *turns
	lobby   *lobby
}

// New makes a Port of valid options.
func New(o Options) *Port {
	return &Port{options: o, turns: newTurns(o.Limit, o.Rest), lobby: newLobby(o.Dropped)}
}

// Expect tells the port that users wait for n connections from a source.
func (p *Port) Expect(source netip.Prefix, n int) { p.lobby.expect(source, n) }

// Close ends all connections whose handshake is not complete, and those that come
// later.
func (p *Port) Close() { p.lobby.close() }

// Handshake makes the handshake on a connection, which it closes if that fails.
// made, if there is one, is called when the handshake is complete, and what it
// returns when the connection is closed.
func (p *Port) Handshake(raw net.Conn, made func(*tls.Conn) (closed func())) (*tls.Conn, error) {
	v := p.lobby.enter(raw)
	conn, err := p.shakeHands(raw, v, made)
	peer := ""
	if err == nil {
		if shown := conn.ConnectionState().PeerCertificates; len(shown) > 0 {
			peer = shown[0].Subject.CommonName
		}
	}
	p.lobby.leave(v, peer, err)
	if err != nil {
		_ = raw.Close()
	}
	return conn, err
}

func (p *Port) shakeHands(raw net.Conn, v *visitor, made func(*tls.Conn) (closed func())) (*tls.Conn, error) {
	t := &turnTaker{Conn: raw, turns: p.turns, turn: v.turn, handshaking: true, buffer: make([]byte, flightSize)}
	defer t.end()
	_ = raw.SetReadDeadline(time.Now().Add(p.options.Timeout))
	if err := t.readFlight(); err != nil {
		return nil, err
	}
	late := time.NewTimer(queueTimeouts * p.options.Timeout)
	defer late.Stop()
	if err := p.turns.take(v.turn, late.C); err != nil {
		return nil, err
	}
	_ = raw.SetReadDeadline(time.Time{})
	late.Reset(p.options.Timeout)
	t.late = late.C
	ctx, cancel := context.WithTimeout(context.Background(), p.options.Timeout)
	defer cancel()
	conn := tls.Server(connect.BelowTLS(t), p.options.Config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if made != nil {
		t.closing = made(conn)
	}
	return conn, nil
}

// turnTaker is the transport of a handshake. One that has something to work on
// takes a turn, and returns it when it waits for its peer again.
type turnTaker struct {
	net.Conn
	turns *turns
	turn  *turn
	late  <-chan time.Time // no turn comes any more

	// Only the handshake's goroutine uses handshaking until end.
	handshaking bool
	buffer      []byte // nil after the handshake
	ahead       []byte // read and not asked for yet

	closing func() // set after the handshake
}

func (t *turnTaker) Close() error {
	if t.closing != nil {
		t.closing()
	}
	return t.Conn.Close()
}

// Abort is for connect.Abort.
func (t *turnTaker) Abort(error) {
	connect.Abort(t.Conn)
	_ = t.Close()
}

// NetConn is what crypto/tls calls the connection below.
func (t *turnTaker) NetConn() net.Conn { return t.Conn }

func (t *turnTaker) Read(p []byte) (int, error) {
	if len(t.ahead) == 0 {
		if !t.handshaking {
			return t.Conn.Read(p)
		}
		t.turns.giveBack(t.turn)
		if err := t.readFlight(); err != nil {
			return 0, err
		}
		if err := t.turns.take(t.turn, t.late); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.ahead)
	if t.ahead = t.ahead[n:]; len(t.ahead) == 0 {
		t.ahead = nil
	}
	return n, nil
}

func (t *turnTaker) readFlight() error {
	n, err := t.Conn.Read(t.buffer)
	if n > 0 {
		t.ahead = t.buffer[:n]
		return nil
	}
	return err
}

func (t *turnTaker) end() {
	t.turns.giveBack(t.turn)
	// The connection keeps t for as long as it lives.
	t.handshaking, t.buffer, t.turn, t.late = false, nil, nil, nil
}
