package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// TestAnyOrderWithoutRest lets both sides of carriers in pools do what they like,
// use after use, without waiting for each other: what TestEveryOrderOfActions
// checks at rest must hold in a hurry. A failure names the seed, which leads to
// the same actions again, if not to the same order.
func TestAnyOrderWithoutRest(t *testing.T) {
	seeds := uint64(80)
	if testing.Short() {
		seeds = 20
	}
	for name, make := range map[string]transport.Maker{"pipe": transport.Pipe, "TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			uses := 0
			for seed := range seeds {
				uses += hurry(t, make, seed)
			}
			t.Logf("%d uses of %d carriers", uses, seeds)
			if uses < int(seeds)*3/2 {
				t.Errorf("%d uses of %d carriers: they are not used again", uses, seeds)
			}
		})
	}
}

// hurried is one end of a connection: what it sent, what it got, how it ended.
type hurried struct {
	cn        *carrier.Conn
	actions   []int
	sent, got []byte
	fin       bool // sent
	err       error
}

// hurry uses one carrier until it breaks, or often enough, and returns how often.
func hurry(t *testing.T, make transport.Maker, seed uint64) (uses int) {
	random := rand.New(rand.NewPCG(seed, 0))
	accepted := newChan()
	opener, acceptor := ends(t, make, func(_ context.Context, p *carrier.Pending) {
		if p.Address == "refused" {
			_ = p.Refuse(&carrier.Error{Code: carrier.Denied})
			return
		}
		cn, err := p.Accept(carrier.Endpoints{})
		if err != nil {
			close(accepted)
			return
		}
		accepted <- cn
	})
	pools := [2]*Pool{New(Config{MinIdle: 1}), New(Config{MinIdle: 1})}
	_ = pools[0].Add(opener)
	_ = pools[1].Add(acceptor)
	defer pools[0].Close()
	defer pools[1].Close()
	for uses < 8 && opener.Err() == nil {
		uses++
		if random.IntN(4) == 0 {
			if _, err := pools[0].Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "refused"}); carrier.CodeOf(err) != carrier.Denied {
				t.Errorf("seed %d: a refusal came as %v, want Denied", seed, err)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		a, err := pools[0].Open(ctx, request)
		cancel()
		if err != nil {
			t.Errorf("seed %d: opening: %v", seed, err)
			return uses
		}
		sides := [2]*hurried{{cn: a}, {cn: <-accepted}}
		var running sync.WaitGroup
		for i, s := range sides {
			for range random.IntN(6) {
				s.actions = append(s.actions, random.IntN(40))
			}
			running.Go(func() { s.act(fmt.Sprintf("seed %d use %d side %d;", seed, uses, i)) })
			running.Go(func() { s.read() })
		}
		running.Wait()
		checkHurried(t, seed, sides)
		if !settle(pools, opener, acceptor) {
			return uses
		}
		for i, p := range pools {
			if s := p.Stats(); s.InUse != 0 || s.Idle != 1 {
				t.Errorf("seed %d: at rest pool %d has %+v", seed, i, s)
			}
		}
	}
	return uses
}

// act writes, mostly, and ends the connection in one way or another.
func (s *hurried) act(label string) {
	for n, action := range s.actions {
		if action%3 == 0 {
			runtime.Gosched()
		}
		switch {
		case action == 0:
			s.cn.Abort(&carrier.Error{Code: carrier.CutOff, Message: "test"})
			return
		case action == 1:
			_ = s.cn.Carrier().Close()
			return
		case action == 2:
			s.fin = true
			_ = s.cn.Close()
			return
		default:
			data := fmt.Appendf(nil, "%s %d %0*d;", label, n, action*action*10, 0)
			s.sent = append(s.sent, data...)
			if _, err := s.cn.Write(data); err != nil {
				return // any part of it may arrive, but no end
			}
		}
	}
	s.fin = s.cn.CloseWrite() == nil
}

func (s *hurried) read() {
	s.got, s.err = io.ReadAll(s.cn)
	if s.err == nil {
		s.err = io.EOF
	}
}

func checkHurried(t *testing.T, seed uint64, sides [2]*hurried) {
	t.Helper()
	for i, s := range sides {
		peer := sides[1-i]
		whole := len(s.got) == len(peer.sent)
		switch {
		case len(s.got) > len(peer.sent) || string(s.got) != string(peer.sent[:len(s.got)]):
			t.Errorf("seed %d: side %d got %d bytes that side %d did not send", seed, i, len(s.got), 1-i)
		case s.err == io.EOF && (!whole || !peer.fin):
			t.Errorf("seed %d: side %d saw a clean end after %d of %d bytes", seed, i, len(s.got), len(peer.sent))
		case s.err != io.EOF && !errors.Is(s.err, net.ErrClosed) && carrier.CodeOf(s.err) == 0:
			t.Errorf("seed %d: side %d: untyped error %v", seed, i, s.err)
		}
		_ = s.cn.Close()
	}
}

// settle waits until both rest, and what they did is told, or one is closed.
func settle(pools [2]*Pool, carriers ...*carrier.Carrier) (well bool) {
	for i, c := range carriers {
		for {
			if c.Err() != nil {
				for _, c := range carriers {
					_ = c.Close()
				}
				return false
			}
			if s := pools[i].Stats(); c.Resting() && s.InUse == 0 {
				break
			}
			runtime.Gosched()
		}
	}
	return true
}
