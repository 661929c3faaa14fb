package carrier

import "errors"

// nextFrame takes the next frame out of the small buffer; ok is false if it is
// not there in full. Of a DATA frame it takes nothing and only says so.
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

// watch reads while no tunnelled connection does: it finds out about a peer
// that died, about OPEN, about the answer to OPEN, and about what comes after
// a FIN. It owns rsem and gives it up as soon as there is data for somebody.
func (c *Carrier) watch() {
	for {
		t, payload, ok, err := c.nextFrame()
		if err == nil && !ok {
			if c.handOver() {
				return
			}
			if err = c.fill(); err == nil {
				continue
			}
		}
		if err != nil {
			if isTimeout(err) && c.yield() {
				return
			}
			c.fail(cutOff(err), telling(CodeOf(err) == Protocol))
			<-c.rsem
			return
		}
		if c.dispatch(t, payload) {
			return
		}
	}
}

// handOver gives reading to the tunnelled connection as soon as one is open,
// unless its FIN came already.
func (c *Carrier) handOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != open || c.cur.finReceived {
		return false
	}
	<-c.rsem
	return true
}

// yield is handOver after a read deadline of the tunnelled connection woke the
// watcher; it also ends the watcher when the carrier is closed.
func (c *Carrier) yield() bool {
	if c.handOver() {
		return true
	}
	if c.Err() == nil {
		return false
	}
	<-c.rsem
	return true
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
	c.mu.Unlock()
	var err error
	switch {
	case reading:
		// An acceptor's watcher reads on after ACCEPT; this frame is not its.
		if t != FrameData {
			c.lo -= HeaderSize + len(payload)
		}
		<-c.rsem
		return true
	case st == closed:
		<-c.rsem
		return true
	case t == FrameOpen && st == idle && c.cfg.Role == Acceptor:
		err = c.serve(payload)
	case t == FrameAccept && st == opening:
		if err = c.accepted(payload); err == nil {
			return true
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

// accepted makes the connection and leaves reading to it.
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
	<-c.rsem
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
	c.mu.Unlock()
	c.tellIdle()
	reply <- openReply{err: e}
	return nil
}
