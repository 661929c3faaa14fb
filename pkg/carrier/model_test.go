package carrier

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// actions are those of the two sides of a carrier, one after the other. An action that
// makes no sense in the state it meets does nothing.
var actions = []string{
	"open", "cancel", "accept", "refuse",
	"A.write", "A.fin", "A.close", "A.abort", "A.crash",
	"B.write", "B.fin", "B.close", "B.abort", "B.crash",
}

var depth = flag.Int("carrier.depth", 5, "length of the sequences of actions; each more takes 14 times as long")

// TestEveryOrderOfActions drives the real implementation over net.Pipe through
// every sequence of actions after an OPEN, and checks what each side saw.
func TestEveryOrderOfActions(t *testing.T) {
	driven, carried := 0, int64(0)
	var walk func(sequence []string)
	walk = func(sequence []string) {
		if len(sequence) == *depth {
			synctest.Test(t, func(t *testing.T) {
				s := newScenario(t, sequence)
				s.run()
				driven++
				carried += s.carried.Load()
			})
			return
		}
		for _, a := range actions {
			if testing.Short() && len(sequence) == 2 && a[0] == 'A' {
				continue
			}
			walk(append(slices.Clone(sequence), a))
		}
	}
	walk([]string{"open"})
	t.Logf("%d sequences, %d bytes arrived in them", driven, carried)
	if carried == 0 {
		t.Error("the sequences carried nothing")
	}
}

type scenario struct {
	t        *testing.T
	sequence []string
	carriers [2]*Carrier
	pending  *Pending
	answered chan struct{}
	cancel   context.CancelFunc
	sides    [2]*side
	crashed  bool
	uses     int
	carried  atomic.Int64
}

// side is what one end of the current connection sent and saw.
type side struct {
	cn             *Conn
	sent, got      []byte
	fin, ended     bool
	err            error
	closed, broken bool
}

func newScenario(t *testing.T, sequence []string) *scenario {
	return &scenario{t: t, sequence: sequence}
}

func (s *scenario) run() {
	handler := func(ctx context.Context, p *Pending) {
		answered := make(chan struct{})
		s.pending, s.answered = p, answered
		select {
		case <-ctx.Done():
		case <-answered:
		}
	}
	x, y := net.Pipe()
	s.carriers[0], s.carriers[1] = endsOver(s.t, x, y, handler)
	for _, action := range s.sequence {
		s.act(action)
		synctest.Wait()
		s.check(action)
	}
	time.Sleep(time.Minute) // fake: every linger is over
	synctest.Wait()
	s.check("the end")
	states := [2]state{s.carriers[0].current(), s.carriers[1].current()}
	if (states[0] == closed) != (states[1] == closed) {
		s.t.Errorf("%q: one side ended alone: %v", s.sequence, states)
	}
	for _, c := range s.carriers {
		_ = c.Close()
	}
	synctest.Wait()
	if s.cancel != nil {
		s.cancel()
	}
}

func (c *Carrier) current() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (s *scenario) act(action string) {
	switch action {
	case "open":
		s.open()
	case "cancel":
		if s.cancel != nil && s.sides[0] == nil {
			s.crashed = s.carriers[0].current() == opening || s.crashed
			s.cancel()
		}
	case "accept":
		if p := s.pending; p != nil {
			s.pending = nil
			defer close(s.answered)
			if cn, err := p.Accept(Endpoints{}); err == nil {
				s.sides[1] = s.reading(cn)
			}
		}
	case "refuse":
		if p := s.pending; p != nil {
			s.pending = nil
			defer close(s.answered)
			_ = p.Refuse(&Error{Code: Denied})
		}
	default:
		s.actOn(int(action[0]-'A'), action[2:])
	}
}

func (s *scenario) open() {
	if s.carriers[0].current() != idle {
		return
	}
	s.uses++
	s.sides = [2]*side{}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		cn, err := s.carriers[0].Open(ctx, request)
		if err == nil {
			s.sides[0] = s.reading(cn)
		} else if CodeOf(err) == 0 {
			s.t.Errorf("%q: Open: untyped error %v", s.sequence, err)
		}
		cancel()
	}()
}

// reading keeps reading from a connection as an application would.
func (s *scenario) reading(cn *Conn) *side {
	x := &side{cn: cn}
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := cn.Read(buf)
			x.got = append(x.got, buf[:n]...)
			s.carried.Add(int64(n))
			if err != nil {
				x.ended, x.err = true, err
				return
			}
		}
	}()
	return x
}

func (s *scenario) actOn(i int, what string) {
	if what == "crash" {
		s.crashed = true
		_ = s.carriers[i].nc.Close()
		return
	}
	x := s.sides[i]
	if x == nil || x.closed {
		return
	}
	switch what {
	case "write":
		data := fmt.Appendf(nil, "use%d side%d byte%d;", s.uses, i, len(x.sent))
		if n, _ := x.cn.Write(data); n > 0 {
			x.sent = append(x.sent, data[:n]...)
		}
	case "fin":
		x.fin = x.cn.CloseWrite() == nil || x.fin
	case "close":
		x.closed, x.fin = true, true
		_ = x.cn.Close()
	case "abort":
		x.broken = true
		x.cn.Abort(&Error{Code: CutOff, Message: "test"})
	}
}

func (s *scenario) check(after string) {
	for i, x := range s.sides {
		peer := s.sides[1-i]
		if x == nil || peer == nil {
			continue
		}
		if len(x.got) > len(peer.sent) || string(x.got) != string(peer.sent[:len(x.got)]) {
			s.t.Errorf("%q after %s: side %d got %q of %q", s.sequence, after, i, x.got, peer.sent)
		}
		if !x.ended {
			continue
		}
		if x.err == io.EOF && (!peer.fin || string(x.got) != string(peer.sent)) {
			s.t.Errorf("%q after %s: side %d saw a clean end that was none", s.sequence, after, i)
		}
		if x.err != io.EOF && !errors.Is(x.err, net.ErrClosed) && CodeOf(x.err) == 0 {
			s.t.Errorf("%q after %s: side %d: untyped error %v", s.sequence, after, i, x.err)
		}
		if x.err != io.EOF && !s.crashed && !x.closed && !x.broken && !peer.broken && !peer.closed {
			s.t.Errorf("%q after %s: side %d broke for no reason: %v", s.sequence, after, i, x.err)
		}
	}
}
