package pool

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// poolOverPipes is an opener's pool that dials carriers to a peer that accepts
// every OPEN.
func poolOverPipes(cfg Config) (p *Pool, peers func() []*carrier.Carrier, accepted chan *carrier.Conn) {
	return poolOver(cfg, func(far net.Conn) net.Conn { return far })
}

// poolOver is poolOverPipes with the peers' ends of the pipes wrapped.
func poolOver(cfg Config, wrap func(far net.Conn) net.Conn) (p *Pool, peers func() []*carrier.Carrier, accepted chan *carrier.Conn) {
	accepted = make(chan *carrier.Conn, 100)
	var mu sync.Mutex
	var far []*carrier.Carrier
	cfg.Dial = func(ctx context.Context) (*carrier.Carrier, error) {
		a, b := net.Pipe()
		go func() {
			c, _, err := carrier.Accepted(context.Background(), wrap(b), carrier.Config{Role: carrier.Acceptor, Handler: accepting(accepted)})
			if err == nil {
				mu.Lock()
				far = append(far, c)
				mu.Unlock()
			}
		}()
		return carrier.Dialed(ctx, a, carrier.Hello{}, carrier.Config{})
	}
	p = New(cfg)
	return p, func() []*carrier.Carrier {
		mu.Lock()
		defer mu.Unlock()
		return append([]*carrier.Carrier(nil), far...)
	}, accepted
}

func TestPoolGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, accepted := poolOverPipes(Config{})
		p.Start()
		synctest.Wait()
		if s := p.Stats(); s.Idle != 2 {
			t.Errorf("at first %+v, want 2 idle carriers", s)
		}
		var near []*carrier.Conn
		for range 10 {
			cn, err := p.Open(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			near = append(near, cn)
		}
		synctest.Wait()
		if s := p.Stats(); s.Idle != 2 || s.InUse != 10 {
			t.Errorf("busy: %+v, want 2 idle and 10 in use", s)
		}
		for _, cn := range near {
			_ = cn.Close()
			_ = (<-accepted).Close()
		}
		synctest.Wait()
		if s := p.Stats(); s.Idle != 12 || s.InUse != 0 {
			t.Errorf("after all were closed: %+v, want 12 idle and none in use", s)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := p.Stats(); s.Idle != 2 {
			t.Errorf("two minutes later: %+v, want 2 idle", s)
		}
		_ = p.Close()
	})
}

func TestPoolNeverHandsOutTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, peers, _ := poolOverPipes(Config{})
		p.Start()
		synctest.Wait()
		for _, c := range peers() {
			_ = c.Close()
		}
		if _, err := p.Open(t.Context(), request); err != nil {
			t.Errorf("error %v, want none", err)
		}
		_ = p.Close()
	})
}

func TestPoolLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := poolOverPipes(Config{Max: 3})
		p.Start()
		for range 3 {
			if _, err := p.Open(t.Context(), request); err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Open(t.Context(), request); carrier.CodeOf(err) != carrier.Overloaded {
			t.Errorf("error %v, want %v", err, carrier.Overloaded)
		}
		_ = p.Close()

		p = New(Config{MaxPending: 1})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = p.Open(ctx, request) }()
		synctest.Wait()
		if _, err := p.Open(t.Context(), request); carrier.CodeOf(err) != carrier.Overloaded {
			t.Errorf("error %v, want %v", err, carrier.Overloaded)
		}
		cancel()
		_ = p.Close()
	})
}

// TestPoolAsksForMoreAndWaitsUntilItsDeadline asks for what one who waits needs, as the dialing side
// keeps idle carriers itself, and asks again when the first request was lost and nothing else happens.
func TestPoolAsksForMoreAndWaitsUntilItsDeadline(t *testing.T) {
	for wait, want := range map[time.Duration]int{time.Second: 1, 12 * time.Second: 3} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			p := New(Config{More: func(n int) { asked += n }})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			if _, err := p.Open(ctx, request); carrier.CodeOf(err) != carrier.TimedOut {
				t.Errorf("error %v, want %v", err, carrier.TimedOut)
			}
			if asked != want {
				t.Errorf("asked for %d in %s, want %d", asked, wait, want)
			}
			_ = p.Close()
		})
	}
}

func TestPoolDialsAgainAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		p := New(Config{
			Dial:    func(context.Context) (*carrier.Carrier, error) { dials++; return nil, errors.New("no route") },
			MinIdle: 1,
			Backoff: func(int) time.Duration { return time.Second },
		})
		p.Start()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if dials != 11 {
			t.Errorf("%d dials in 10 s, one second apart", dials)
		}
		_ = p.Close()
	})
}

// Many lose their carriers at once, and must not be back at once; but who waits
// for one is not to pay for that.
func TestPoolPausesAfterCarriersWereCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, peers, _ := poolOverPipes(Config{Backoff: func(int) time.Duration { return time.Second }})
		p.Start()
		synctest.Wait()
		cut := func() {
			for _, c := range peers() {
				_ = c.Close()
			}
			synctest.Wait()
		}
		cut()
		time.Sleep(time.Second - time.Millisecond)
		synctest.Wait()
		if s := p.Stats(); s.Idle != 0 {
			t.Errorf("within the pause %+v, want no idle carrier", s)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if s := p.Stats(); s.Idle != 2 {
			t.Errorf("after the pause %+v, want 2 idle carriers", s)
		}
		cut()
		began := time.Now()
		if _, err := p.Open(t.Context(), request); err != nil || time.Since(began) != 0 {
			t.Errorf("Open of one who waited: error %v after %s, want a connection at once", err, time.Since(began))
		}
		cut()
		p.Request(1)
		synctest.Wait()
		if s := p.Stats(); s.Idle != 1 {
			t.Errorf("asked for one by the peer, within the pause: %+v", s)
		}
		_ = p.Close()
	})
}

func TestPoolFailsWaitersWithoutCarriers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noRoute := errors.New("no route")
		p := New(Config{
			Dial: func(context.Context) (*carrier.Carrier, error) { time.Sleep(slowAfter / 2); return nil, noRoute },
		})
		began := time.Now()
		if _, err := p.Open(t.Context(), request); !errors.Is(err, noRoute) || time.Since(began) != slowAfter/2 {
			t.Errorf("error %v after %s, want that of the first dial", err, time.Since(began))
		}
		_ = p.Close()

		// A carrier that is in use may come back.
		var dials atomic.Int32
		first, accepted := (*carrier.Carrier)(nil), make(chan *carrier.Conn, 1)
		p = New(Config{
			Dial: func(ctx context.Context) (*carrier.Carrier, error) {
				if dials.Add(1) > 1 {
					return nil, noRoute
				}
				a, b := net.Pipe()
				go func() {
					_, _, _ = carrier.Accepted(context.Background(), b, carrier.Config{Role: carrier.Acceptor, Handler: accepting(accepted)})
				}()
				var err error
				first, err = carrier.Dialed(ctx, a, carrier.Hello{}, carrier.Config{})
				return first, err
			},
			MinIdle: 1, Backoff: func(int) time.Duration { return time.Second },
		})
		cn, err := p.Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, func() {
			_ = cn.Close()
			_ = (<-accepted).Close()
		})
		again, err := p.Open(t.Context(), request)
		if err != nil || again.Carrier() != first {
			t.Errorf("who waits got %v, want the carrier that came back", err)
		}
		_ = p.Close()
	})
}

func TestPoolDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, accepted := poolOverPipes(Config{})
		cn, err := p.Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(t.Context()) }()
		synctest.Wait()
		if _, err := p.Open(t.Context(), request); carrier.CodeOf(err) != carrier.Draining {
			t.Errorf("error %v, want %v", err, carrier.Draining)
		}
		select {
		case <-drained:
			t.Error("drained before the connection ended")
		default:
		}
		_ = cn.Close()
		_ = (<-accepted).Close()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		_ = p.Close()
	})
}
