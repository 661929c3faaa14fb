package liveness

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
		p := New(func(ctx context.Context) error {
			if time.Now().Before(back) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		defer p.Forget()
		stop := p.AwaitAnswer(func() {})
		time.Sleep(3 * PingAfter / 2)
		p.Heard() // by another dial, half a second after the first ping
		time.Sleep(5 * PingAfter)
		stop()
		if !p.IsSuspect() {
			t.Fatal("an agent that does not answer is no suspect")
		}
		time.Sleep(time.Until(back) + pingBound + 2*PingAfter)
		if p.IsSuspect() {
			t.Error("an agent that answers pings is a suspect")
		}
	})
}
