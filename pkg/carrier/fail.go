package carrier

import (
	"context"
	"net"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// telling says whether fail sends a RESET before it closes the transport.
type telling bool

const (
	tellPeer  telling = true
	keepQuiet telling = false
)

var longAgo = time.Unix(1, 0)

// fail ends the carrier; only the first call has an effect.
func (c *Carrier) fail(err *Error, tell telling) {
	c.failIf(func() bool { return true }, err, tell)
}

// failIf is fail under a condition, which is evaluated with mu held.
func (c *Carrier) failIf(cond func() bool, err *Error, tell telling) {
	c.mu.Lock()
	if c.state == closed || !cond() {
		c.mu.Unlock()
		return
	}
	cur, reply, pend, observer := c.cur, c.reply, c.pend, c.observer
	c.state, c.err = closed, err
	c.cur, c.reply, c.pend = nil, nil, nil
	close(c.done)
	_ = c.nc.SetReadDeadline(longAgo)
	c.mu.Unlock()

	if reply != nil {
		reply <- openReply{err: err}
	}
	if pend != nil {
		pend.cancel(err)
	}
	if cur != nil {
		cur.fail(err)
	}
	go c.shutdown(err, tell)
	if c.session != nil {
		c.session.end(err)
	}
	if observer != nil {
		observer.CarrierClosed(c)
	}
}

// resetWait is how long a RESET waits for a write under way: one that does
// not block is over by then, also if its goroutine has lost the processor.
const resetWait = 200 * time.Millisecond

// resetTime is how long a RESET may take to be sent, and then to be read.
const resetTime = time.Second

// shutdown closes the transport. A RESET is sent if no write is blocked and
// none stopped within a frame; then it waits for the peer to close, or TCP
// would throw away a RESET in flight because of what arrived unread.
func (c *Carrier) shutdown(err *Error, tell telling) {
	defer close(c.gone)
	if tell {
		limit := time.NewTimer(resetWait)
		defer limit.Stop()
		select {
		case c.wsem <- struct{}{}:
			if c.wrem == 0 && len(c.wpend) == 0 {
				c.sendReset(err)
			}
		case <-limit.C:
			// The peer does not read: only TCP's reset reaches it.
			if tcp := dial.TCPConnOf(c.nc); tcp != nil {
				_ = tcp.SetLinger(0)
			}
		}
	}
	_ = c.nc.Close()
}

func (c *Carrier) sendReset(err *Error) {
	deadline := time.Now().Add(resetTime)
	_ = c.nc.SetWriteDeadline(deadline)
	if _, e := c.nc.Write(controlFrame(FrameReset, err.append)); e != nil {
		return
	}
	if dial.CloseWrite(c.nc, func() error { return net.ErrClosed }) != nil {
		return
	}
	limit := time.NewTimer(resetTime)
	defer limit.Stop()
	select {
	case c.rsem <- struct{}{}: // the reader was woken up by fail
	case <-limit.C: // the reader is busy
		return
	}
	_ = c.nc.SetReadDeadline(deadline)
	for {
		if _, e := c.nc.Read(c.small[:]); e != nil {
			return
		}
	}
}

// release makes the carrier idle if both FINs were seen; mu is held. The peer may
// send OPEN from now on, though the last FIN may still be under way.
func (c *Carrier) release(cn *Conn) {
	if c.state == open && c.cur == cn && cn.finSent && cn.finReceived {
		c.state, c.cur = idle, nil
	}
}

// rests reports whether the carrier is idle, with all that it was given to send
// written; mu is held.
func (c *Carrier) rests() bool { return c.state == idle && !c.unsent }

// Resting reports whether the carrier is idle, with all that it was given to send
// written.
func (c *Carrier) Resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests()
}

// sent notes that what ended a connection is written, and reports whether the
// carrier rests since now. The right to write is held.
func (c *Carrier) sent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsent = false
	return c.rests()
}

// tellIdle reports that the carrier rests. The goroutine that caused that calls it,
// once: an opener's carrier may be in use again right after, and an acceptor's may be
// already.
func (c *Carrier) tellIdle() {
	c.mu.Lock()
	if !c.rests() {
		c.mu.Unlock()
		return
	}
	observer, drained := c.observer, c.draining && c.cfg.Role == Opener
	if c.unused != nil {
		close(c.unused)
		c.unused = nil
	}
	c.mu.Unlock()
	if drained {
		c.fail(errDraining, keepQuiet)
	} else if observer != nil {
		observer.CarrierIdle(c)
	}
}

// takeWrite waits for the right to write, which the caller gives back. Its error is why the
// carrier was closed.
func (c *Carrier) takeWrite() error {
	select {
	case c.wsem <- struct{}{}:
		return nil
	case <-c.done:
		return c.Err()
	}
}

// writeControl writes a whole frame that is not DATA.
func (c *Carrier) writeControl(frame []byte) error {
	if err := c.takeWrite(); err != nil {
		return err
	}
	defer func() { <-c.wsem }()
	_, err := c.nc.Write(frame)
	return err
}

// WaitIdle waits until a drained carrier is closed, or idle with its last bytes
// written, or until ctx ends.
func (c *Carrier) WaitIdle(ctx context.Context) error {
	c.mu.Lock()
	if c.rests() || c.state == closed {
		c.mu.Unlock()
		return nil
	}
	if c.unused == nil {
		c.unused = make(chan struct{})
	}
	unused := c.unused
	c.mu.Unlock()
	select {
	case <-unused:
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ContextError(ctx)
	}
}

// Close closes the transport at once, and cuts off the connection that it carries.
func (c *Carrier) Close() error {
	c.fail(&Error{Code: CutOff, Message: "the carrier was closed", Err: net.ErrClosed}, keepQuiet)
	<-c.gone
	return nil
}

// Abort closes the carrier, says why to the peer, and cuts off the connection that it carries.
func (c *Carrier) Abort(reason error) { c.fail(cutOff(reason), tellPeer) }

// GiveUp closes the carrier without telling the peer, which does not answer, and
// without waiting for the transport. Its connection fails with the reason.
func (c *Carrier) GiveUp(reason *Error) { c.fail(reason, keepQuiet) }
