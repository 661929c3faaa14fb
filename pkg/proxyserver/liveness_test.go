package proxyserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSuspectIsPingedUntilItAnswers has an agent that answers a dial while a ping waits, and is
// silent then for a while: when it is back, it is a suspect no longer, though no dial is sent to
// it any more.
func TestSuspectIsPingedUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(20 * time.Second)
		ctx, forget := context.WithCancel(t.Context())
		defer forget()
		l := &liveness{ctx: ctx, ping: func(ctx context.Context) error {
			if time.Now().Before(back) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		stop := l.awaitAnswer(func() {})
		time.Sleep(3 * pingAfter / 2)
		l.heard() // by another dial, half a second after the first ping
		time.Sleep(5 * pingAfter)
		stop()
		if !l.isSuspect() {
			t.Fatal("an agent that does not answer is no suspect")
		}
		time.Sleep(time.Until(back) + pingTimeout + 2*pingAfter)
		if l.isSuspect() {
			t.Error("an agent that answers pings is a suspect")
		}
	})
}
