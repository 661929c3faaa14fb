package proxyserver

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// flightSize is how much of a flight is read at a time: more than a ClientHello
// with a session ticket has, or a client's certificate with an elliptic key.
const flightSize = 4 << 10

// queuePatience bounds the wait for the first turn, in handshake timeouts. A
// peer's own limit is about one.
const queuePatience = 2

// shakeHands makes the handshake on a connection. The peer has the handshake
// timeout to say something, and the same again from the first turn on.
func (m *muxListener) shakeHands(raw net.Conn, v *visitor) (*tls.Conn, error) {
	t := &turnTaker{Conn: raw, turns: m.turns, turn: v.turn, handshaking: true, buffer: make([]byte, flightSize)}
	defer t.end()
	_ = raw.SetReadDeadline(time.Now().Add(m.limits.HandshakeTimeout))
	if err := t.readFlight(); err != nil {
		return nil, err
	}
	late := time.NewTimer(queuePatience * m.limits.HandshakeTimeout)
	defer late.Stop()
	if err := m.turns.take(v.turn, late.C); err != nil {
		return nil, err
	}
	_ = raw.SetReadDeadline(time.Time{})
	late.Reset(m.limits.HandshakeTimeout)
	t.late = late.C
	ctx, cancel := context.WithTimeout(context.Background(), m.limits.HandshakeTimeout)
	defer cancel()
	conn := tls.Server(connect.BelowTLS(t), m.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	t.closing = m.conns.add(conn, raw, m.source, m.agents)
	return conn, nil
}

// turnTaker is the transport of a handshake. One that has something to work on
// takes a turn, and gives it back when it waits for its peer again.
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
	t.handshaking, t.buffer = false, nil
}
