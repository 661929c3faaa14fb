package carrier

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPing asks a peer that answers, and one that says nothing.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, peers, accepted := poolOverPipes(PoolConfig{})
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
		for _, c := range peers() {
			c.wsem <- struct{}{} // the answer is never written
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := p.Ping(ctx); err == nil {
			t.Error("Ping = nil without an answer")
		}
		for _, c := range peers() {
			<-c.wsem
		}
		_ = p.Close()
	})
}

func TestAnswered(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{&Error{Code: Denied}, true},
		{&Error{Code: NoAgent}, true},
		{&Error{Code: NoAgent, Reset: true}, false},
		{&Error{Code: TimedOut, Message: "dial tcp: i/o timeout"}, true},
		{&Error{Code: TimedOut, Err: context.DeadlineExceeded}, false},
		{&Error{Code: Canceled, Err: context.Canceled}, false},
		{errPending, false},
		{errDraining, false},
		{errors.New("other"), false},
	} {
		if got := Answered(test.err); got != test.want {
			t.Errorf("Answered(%v) = %t, want %t", test.err, got, test.want)
		}
	}
}
