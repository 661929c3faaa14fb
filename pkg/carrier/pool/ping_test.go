package pool

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// held is a connection that is written to with a token only.
type held struct {
	net.Conn
	mayWrite chan struct{}
}

func (h held) Write(b []byte) (int, error) {
	<-h.mayWrite
	defer func() { h.mayWrite <- struct{}{} }()
	return h.Conn.Write(b)
}

// TestPing asks a peer that answers, and one that says nothing.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mayWrite := make(chan struct{}, 1)
		mayWrite <- struct{}{}
		p, _, accepted := poolOver(Config{}, func(far net.Conn) net.Conn { return held{far, mayWrite} })
		p.Start()
		if err := p.Ping(t.Context()); err != nil {
			t.Errorf("Ping = %v, want nil", err)
		}
		if len(accepted) != 0 {
			t.Error("the handler saw the ping")
		}
		synctest.Wait()
		if s := p.Stats(); s.InUse != 0 || s.Pending != 0 {
			t.Errorf("after the ping %+v, want idle carriers only", s)
		}
		<-mayWrite // the answer is never written
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := p.Ping(ctx); err == nil {
			t.Error("Ping = nil without an answer")
		}
		mayWrite <- struct{}{}
		_ = p.Close()
	})
}

// TestPingOfABusyPeer has all carriers that there may be in use, which is no sign of silence.
func TestPingOfABusyPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := poolOverPipes(Config{Max: 2, OnePeer: true})
		defer p.Close()
		for range 2 {
			if _, err := p.Open(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Ping(t.Context()); err != nil {
			t.Errorf("Ping with all carriers in use = %v, want nil", err)
		}
	})
}
