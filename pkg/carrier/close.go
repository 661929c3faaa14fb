package carrier

import (
	"net"
	"time"
)

// CloseWrite sends FIN: no more data from this side. The carrier is idle again
// once the peer did the same.
func (cn *Conn) CloseWrite() error {
	if err := cn.lockWrite(); err != nil {
		return err
	}
	return cn.writeFIN(nil)
}

// writeFIN writes what is left over and FIN; wsem is held and released. The
// state changes first: the peer may send OPEN as soon as it has the FIN.
func (cn *Conn) writeFIN(before []byte) error {
	c := cn.c
	c.mu.Lock()
	if c.cur != cn || cn.finSent {
		c.mu.Unlock()
		<-c.wsem
		return cn.writeEnd()
	}
	cn.finSent, c.unsent = true, true
	c.release(cn)
	c.mu.Unlock()
	var buf [HeaderSize]byte
	frame := AppendHeader(buf[:0], FrameFin, 0)
	if before != nil {
		frame = append(before, frame...)
	}
	_, err := c.nc.Write(frame)
	if err != nil {
		c.fail(cutOff(err), keepQuiet)
		<-c.wsem
		return cutOff(err)
	}
	c.wrem = 0
	_ = c.nc.SetWriteDeadline(time.Time{})
	rests := c.sent()
	<-c.wsem
	if rests {
		c.tellIdle()
	}
	return nil
}

// Abort ends the connection abnormally: the peer's reads and writes fail with
// the reason, and the carrier is closed.
func (cn *Conn) Abort(reason error) {
	e := cutOff(reason)
	cn.c.failIf(func() bool { return cn.c.cur == cn }, e, tellPeer)
}

// Close is part of net.Conn. It does not wait. If the connection was not closed for
// sending, FIN closes it; the carrier is used again if the peer's FIN comes within
// Linger and after at most 64 KiB, else it is closed with RESET.
func (cn *Conn) Close() error {
	c := cn.c
	c.mu.Lock()
	if cn.userClosed() {
		c.mu.Unlock()
		return net.ErrClosed
	}
	close(cn.closing)
	if c.cur != cn {
		c.mu.Unlock()
		return nil
	}
	drain, fin := !cn.finReceived, !cn.finSent
	if drain {
		_ = c.nc.SetReadDeadline(longAgo)
	}
	c.mu.Unlock()
	if fin {
		select {
		case c.wsem <- struct{}{}:
		default: // a write is under way and must end now
			cn.Abort(errClosedEarly)
			return nil
		}
	}
	go cn.linger(fin, drain)
	return nil
}

var errClosedEarly = &Error{Code: Closed, Message: "the connection was closed before its end"}

// deliverTime is how long what was written before Close may take to leave.
const deliverTime = time.Minute

func (cn *Conn) linger(fin, drain bool) {
	c := cn.c
	deadline := time.Now().Add(c.cfg.Linger)
	written, reading := false, false // the FIN, and up to the peer's; under c.mu
	if fin {
		deadline = deadline.Add(deliverTime)
		_ = c.nc.SetWriteDeadline(deadline)
		pending := c.takePending()
		if !drain {
			_ = cn.writeFIN(pending)
			return
		}
		// Both sides may close at once: neither must write before it reads.
		go func() {
			_ = cn.writeFIN(pending)
			c.mu.Lock()
			written = true
			// A Read of the user's that Close ended may not have noticed yet. A later
			// deadline would make it wait on.
			if reading && c.cur == cn && !cn.finReceived {
				_ = c.nc.SetReadDeadline(time.Now().Add(c.cfg.Linger))
			}
			c.mu.Unlock()
		}()
	}
	limit := time.NewTimer(time.Until(deadline))
	defer limit.Stop()
	select {
	case c.rsem <- struct{}{}:
	case <-c.done:
		return
	case <-cn.over:
		return
	case <-limit.C:
		cn.Abort(errClosedEarly)
		return
	}
	c.mu.Lock()
	live := c.cur == cn && !cn.finReceived
	if live {
		reading = true
		if fin && written {
			deadline = time.Now().Add(c.cfg.Linger)
		}
		_ = c.nc.SetReadDeadline(deadline)
	}
	c.mu.Unlock()
	if live && cn.discard() {
		c.watch()
	} else {
		<-c.rsem
	}
}

// takePending returns what a write that timed out left; wsem is held.
func (c *Carrier) takePending() []byte {
	b := c.wpend
	c.wpend = nil
	return b
}

// discard reads up to the FIN, and reports whether there was one.
func (cn *Conn) discard() bool {
	c := cn.c
	for budget := MaxFrame; ; {
		for c.rem > 0 && c.lo < c.hi {
			n := min(c.rem, c.hi-c.lo)
			c.rem, c.lo, budget = c.rem-n, c.lo+n, budget-n
		}
		var fin bool
		var err error
		if c.rem > 0 {
			err = cn.readError(c.fill())
		} else {
			fin, err = cn.nextData()
		}
		switch {
		case fin:
			return true
		case err != nil || budget < 0:
			cn.Abort(errClosedEarly)
			return false
		}
	}
}
