package carriertest

import (
	"net"
	"sync/atomic"
)

// Mutable is a connection that can go silent: it swallows what passes, in both
// directions and without an error, once it was muted. It keeps its deadlines.
type Mutable struct {
	net.Conn
	muted atomic.Bool
}

// Mute makes the connection silent.
func (m *Mutable) Mute() { m.muted.Store(true) }

// Write is part of net.Conn.
func (m *Mutable) Write(b []byte) (int, error) {
	if m.muted.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// Read is part of net.Conn.
func (m *Mutable) Read(b []byte) (int, error) {
	for {
		n, err := m.Conn.Read(b)
		if err != nil || !m.muted.Load() {
			return n, err
		}
	}
}
