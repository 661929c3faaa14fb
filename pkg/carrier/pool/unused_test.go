package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// TestOpenThatIsNotSent takes a carrier for an OPEN that is too long to be sent, and for one
// whose caller gives up in the moment in which it gets the carrier: it is idle as before.
func TestOpenThatIsNotSent(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, p *Pool) error{
		"too long": func(t *testing.T, p *Pool) error {
			_, err := p.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:" + strings.Repeat("0", carrier.MaxControl) + "443"})
			return err
		},
		"given up": func(t *testing.T, p *Pool) error {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := p.take(ctx)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			_, err = p.openOn(ctx, c, request, time.Now())
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller gave up: %v", err)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{MinIdle: 1})
				defer p.Close()
				opener, _ := ends(t, transport.Pipe, accepting(newChan()))
				if err := p.Add(opener); err != nil {
					t.Fatal(err)
				}
				if err := open(t, p); err == nil {
					t.Fatal("it was sent")
				}
				synctest.Wait()
				if stats := p.Stats(); stats.Idle != 1 || stats.InUse != 0 {
					t.Errorf("%d carriers are idle and %d in use, want 1 and none", stats.Idle, stats.InUse)
				}
			})
		})
	}
}
