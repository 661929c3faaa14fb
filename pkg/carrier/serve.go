package carrier

import (
	"context"
	"net"
)

// Pending is an OPEN that was not answered yet.
type Pending struct {
	OpenRequest
	c      *Carrier
	cancel context.CancelCauseFunc
}

// serve prepares to answer an OPEN. The function it returns, if any, does that,
// and is called while another goroutine watches, which notices when the opener gives up.
func (c *Carrier) serve(payload []byte) (func(), error) {
	r, err := decodeOpen(payload)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &Pending{OpenRequest: r, c: c, cancel: cancel}
	c.mu.Lock()
	if c.state != idle {
		c.mu.Unlock()
		cancel(nil)
		return nil, nil
	}
	c.state, c.pend, c.asked = pending, p, true
	c.session.opened(r.Network, Acceptor)
	observer, draining := c.observer, c.draining
	c.mu.Unlock()
	if observer != nil {
		observer.CarrierBusy(c)
	}
	return func() { p.run(ctx, draining) }, nil
}

func (p *Pending) run(ctx context.Context, draining bool) {
	defer p.cancel(nil)
	if p.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, p.Timeout)
		defer stop()
	}
	if draining {
		_ = p.Refuse(errDraining)
		return
	}
	if p.Network == NetworkPing {
		_ = p.Refuse(errPinged)
		return
	}
	p.c.cfg.Handler.ServeOpen(ctx, p)
	_ = p.Refuse(&Error{Code: Unreachable, Message: "the request was not answered"})
}

// Carrier is what the request came on.
func (p *Pending) Carrier() *Carrier { return p.c }

// Accept answers that the connection stands, between these endpoints.
func (p *Pending) Accept(ends Endpoints) (*Conn, error) {
	cn := newConn(p.c, Addr(ends.Remote), Addr(ends.Local))
	err := p.answer(controlFrame(FrameAccept, ends.append), func() { p.c.state, p.c.cur = open, cn })
	if err != nil {
		return nil, err
	}
	return cn, nil
}

// Refuse answers that there will be no connection. An error that is not an
// *Error is sent as Unreachable. A request that was answered stays as it is.
func (p *Pending) Refuse(reason error) error {
	e := &Error{Code: Unreachable, Message: reason.Error()}
	if code := CodeOf(reason); code != 0 {
		e = cutOff(reason)
	}
	err := p.answer(controlFrame(FrameRefuse, e.append), func() { p.c.state, p.c.unsent = idle, true })
	if err == nil {
		p.c.tellIdle()
	}
	return err
}

// unanswered is nil as long as the request waits for an answer.
func (p *Pending) unanswered() error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	switch {
	case p.c.pend == p:
		return nil
	case p.c.err != nil:
		return p.c.err
	}
	return net.ErrClosed
}

// answer changes the state before it writes: the peer may use the new state as
// soon as the frame arrives, and what this side writes then waits for wsem.
func (p *Pending) answer(frame []byte, enter func()) error {
	c := p.c
	if len(frame) > smallBuffer {
		return violation("answer of %d bytes is too long", len(frame))
	}
	// An answered request must not take the right to write: it belongs to the
	// connection now, and Close treats a taken right as a blocked Write.
	if err := p.unanswered(); err != nil {
		return err
	}
	if err := c.takeWrite(); err != nil {
		return err
	}
	defer func() { <-c.wsem }()
	c.mu.Lock()
	if c.pend != p {
		c.mu.Unlock()
		return p.unanswered()
	}
	enter()
	c.pend = nil
	c.mu.Unlock()
	if _, err := c.nc.Write(frame); err != nil {
		e := cutOff(err)
		c.fail(e, keepQuiet)
		return e
	}
	c.sent()
	return nil
}
