package carrier

import "errors"

// nextFrame takes the next frame out of the small buffer; ok is false if it is not
// there in full. Of a DATA frame it takes nothing and only says so.
func (c *Carrier) nextFrame() (t FrameType, payload []byte, ok bool, err error) {
	b := c.small[c.lo:c.hi]
	if len(b) < HeaderSize {
		return 0, nil, false, nil
	}
	t, n, err := ParseHeader(b)
	if err != nil {
		return 0, nil, false, violation("%v", err)
	}
	if t == FrameData {
		return t, nil, true, nil
	}
	if len(b) < HeaderSize+n {
		return 0, nil, false, nil
	}
	c.lo += HeaderSize + n
	return t, b[HeaderSize : HeaderSize+n], true, nil
}

// fill reads once into the small buffer.
func (c *Carrier) fill() error {
	if c.lo > 0 {
		c.hi = copy(c.small[:], c.small[c.lo:c.hi])
		c.lo = 0
	}
	n, err := c.nc.Read(c.small[c.hi:])
	c.hi += n
	if n > 0 {
		return nil
	}
	return err
}

// watch reads while no tunnelled connection does: it notices a peer that died, OPEN,
// the answer to OPEN, and what comes after a FIN. It owns rsem and releases it as soon
// as there is data for a connection, unless that left a function that reads here.
func (c *Carrier) watch() {
	for {
		t, payload, ok, err := c.nextFrame()
		if err == nil && !ok {
			switch c.lend() {
			case released:
				return
			case returned:
				continue
			}
			if err = c.fill(); err == nil {
				continue
			}
		}
		if isTimeout(err) {
			// A deadline of the tunnelled connection, or the carrier was closed.
			switch c.passRead() {
			case released:
				return
			case returned:
				continue
			}
		}
		if err != nil {
			c.fail(cutOff(err), telling(CodeOf(err) == Protocol))
			<-c.rsem
			return
		}
		if c.dispatch(t, payload) {
			return
		}
	}
}

// readRight tells where the right to read is.
type readRight int

const (
	unclaimed readRight = iota // here: no connection wants it yet
	released                   // passed on; the watcher is done
	returned                   // here again, after it was used up to a FIN
)

// lend runs the function that the tunnelled connection left with readWith.
func (c *Carrier) lend() readRight {
	c.mu.Lock()
	if c.state != open || c.cur.reader == nil {
		c.mu.Unlock()
		return unclaimed
	}
	read := c.cur.reader
	c.cur.reader = nil
	c.mu.Unlock()
	if read(nil) {
		return returned
	}
	<-c.rsem
	return released
}

// passRead hands the right to read to the tunnelled connection, if one is open whose
// FIN did not come yet.
func (c *Carrier) passRead() readRight {
	if lent := c.lend(); lent != unclaimed {
		return lent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != open || c.cur.finReceived:
		return unclaimed
	case c.cur.reader != nil: // since a moment; the loop looks again
		return returned
	}
	c.stopWatching()
	return released
}

// stopWatching releases rsem for the tunnelled connection; mu is held.
func (c *Carrier) stopWatching() {
	c.watching = false
	<-c.rsem
}

// readWith arranges one call of read: with nil and the right to read, or with the
// reason why nothing can be read. read reports whether it read the FIN, and leaves the
// right to read where it is. The watcher's goroutine calls it, if that has the right;
// otherwise a new one does.
func (cn *Conn) readWith(read func(error) (fin bool)) {
	c := cn.c
	c.mu.Lock()
	if c.cur == cn && c.watching && !cn.finReceived {
		cn.reader = read
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	go func() {
		if err := cn.lockRead(); err != nil {
			read(err)
		} else if read(nil) {
			c.watch()
		} else {
			<-c.rsem
		}
	}()
}

// dispatch handles one frame that the watcher saw, and reports whether the
// watcher is done.
func (c *Carrier) dispatch(t FrameType, payload []byte) (finished bool) {
	if t == FrameReset {
		e, err := decodeError(payload, true)
		if err != nil {
			e = violation("%v", err)
		}
		c.fail(e, keepQuiet)
		<-c.rsem
		return true
	}
	c.mu.Lock()
	st := c.state
	reading := st == open && !c.cur.finReceived
	hears := (st == idle || st == opening || st == pending) && c.session.hears()
	c.mu.Unlock()
	var err error
	switch {
	case reading:
		// An acceptor's watcher reads on after ACCEPT; this frame is not its.
		if t != FrameData {
			c.lo -= HeaderSize + len(payload)
		}
		switch c.passRead() {
		case returned:
			return false
		case unclaimed: // the carrier was closed meanwhile
			<-c.rsem
		}
		return true
	case st == closed:
		<-c.rsem
		return true
	case t == FrameControl && hears:
		err = c.session.receive(payload)
	case t == FrameOpen && st == idle && c.cfg.Role == Acceptor && c.session.takesOpen():
		var serve func()
		if serve, err = c.serve(payload); serve != nil {
			// A fresh goroutine costs less beside the dial than before it.
			go c.watch()
			serve()
			return true
		}
	case t == FrameAccept && st == opening:
		if err = c.accepted(payload); err == nil {
			return !c.cfg.Relays
		}
	case t == FrameRefuse && st == opening:
		err = c.refused(payload)
	default:
		err = violation("frame of type %d out of place", t)
	}
	if err != nil {
		c.fail(violation("%v", err), tellPeer)
		<-c.rsem
		return true
	}
	return false
}

// accepted makes the connection and leaves reading to it, now or with the first
// frame.
func (c *Carrier) accepted(payload []byte) error {
	ends, err := decodeEndpoints(payload)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != opening {
		return errors.New("ACCEPT came too late")
	}
	reply := c.reply
	c.cur, c.reply, c.state = newConn(c, Addr(ends.Local), Addr(ends.Remote)), nil, open
	c.session.answered()
	if !c.cfg.Relays {
		c.stopWatching()
	}
	reply <- openReply{conn: c.cur}
	return nil
}

func (c *Carrier) refused(payload []byte) error {
	e, err := decodeError(payload, false)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.state != opening {
		c.mu.Unlock()
		return errors.New("REFUSE came too late")
	}
	reply := c.reply
	c.reply, c.state = nil, idle
	c.session.answered()
	c.mu.Unlock()
	c.tellIdle()
	reply <- openReply{err: e}
	return nil
}
