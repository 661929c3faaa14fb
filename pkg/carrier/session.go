package carrier

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// pingTimeout is how long a peer that was pinged may go on to be silent, and how long it may
// take to accept a message.
const pingTimeout = 10 * time.Second

// SessionConfig configures a Session. Zero values mean the defaults.
type SessionConfig struct {
	// PingAfter is how long the peer is silent before it is pinged. Default 30 s.
	PingAfter time.Duration
	// Most is how many messages the peer may send within a minute; 0 means that there
	// is no limit.
	Most int
	// Carrier is what the session becomes with the first OPEN on it, if the peer knows
	// FeatureOpens too; nil if it is to take none.
	Carrier *Config
}

// Session is one end of a control session, on which two peers send each other messages
// about their carriers. With an OPEN, a ping excepted, it is over, and what it ran on is a
// carrier like others.
type Session struct {
	c     *Carrier
	cfg   SessionConfig
	peer  Hello
	opens bool // both sides know FeatureOpens

	// Under the carrier's mu: over says that no message may be sent any more, and heedless
	// that none may come. An opener hears what was sent before the OPEN arrived.
	over, heedless bool

	handle func(Control) // set before the watcher starts

	mu       sync.Mutex
	heard    time.Time // when the peer said something last
	minute   time.Time // since when received counts
	received int
	timer    *time.Timer // nil unless the session is served
	ended    func(error) // nil until Start, and once it was called
}

// errOver is the error of a message that comes too late.
var errOver = errors.New("the control session carries a connection by now; the peer makes another one")

func newSession(nc net.Conn, peer Hello, cfg SessionConfig) *Session {
	if cfg.PingAfter == 0 {
		cfg.PingAfter = 30 * time.Second
	}
	config := Config{Role: Acceptor} // to which no OPEN is let through
	if cfg.Carrier != nil {
		config = *cfg.Carrier
	}
	s := &Session{c: newCarrierStopped(nc, config), cfg: cfg, peer: peer}
	s.opens = cfg.Carrier != nil && slices.Contains(peer.Features, FeatureOpens)
	s.c.session = s
	return s
}

// features are those that a HELLO has besides others.
func (cfg SessionConfig) features(others []string) []string {
	all := []string{FeatureControl}
	if cfg.Carrier != nil {
		all = append(all, FeatureOpens)
	}
	return append(all, others...)
}

// DialSession asks the peer of a transport that this side dialed for a control session,
// and waits for the answer, as long as ctx allows. With an error the transport is closed.
func DialSession(ctx context.Context, nc net.Conn, hello Hello, cfg SessionConfig) (*Session, error) {
	hello.Features = cfg.features(hello.Features)
	if err := writeHello(ctx, nc, hello); err != nil {
		return nil, err
	}
	answer, err := ReadHello(ctx, nc)
	if err != nil {
		return nil, err
	}
	s := newSession(nc, answer, cfg)
	s.c.peer = answer.Session
	return s, nil
}

// AcceptSession makes a control session of a transport from which a HELLO was read
// that asks for one. Answer or Close must follow; messages wait for the answer.
func AcceptSession(nc net.Conn, hello Hello, cfg SessionConfig) *Session {
	s := newSession(nc, hello, cfg)
	s.c.wsem <- struct{}{}
	return s
}

// Answer confirms a session that was made by AcceptSession, as long as ctx allows.
// With an error the transport is closed.
func (s *Session) Answer(ctx context.Context, answer Hello) error {
	defer func() { <-s.c.wsem }()
	if err := s.Err(); err != nil {
		return err
	}
	answer.Features = s.cfg.features(answer.Features)
	return writeHello(ctx, s.c.nc, answer)
}

// Refuse says to the peer of a transport from which a HELLO was read why it is not
// served, and closes the transport.
func Refuse(nc net.Conn, reason error) {
	_ = nc.SetWriteDeadline(time.Now().Add(resetTime))
	_, _ = nc.Write(controlFrame(FrameReset, cutOff(reason).append))
	_ = nc.Close()
}

// Peer is the peer's HELLO.
func (s *Session) Peer() Hello { return s.peer }

// Carrier is what the session runs on, and becomes if Opens.
func (s *Session) Carrier() *Carrier { return s.c }

// Opens reports whether both sides know that an OPEN may come on the session.
func (s *Session) Opens() bool { return s.opens }

// Over reports whether the session has become a carrier, or has ended.
func (s *Session) Over() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.over || s.c.err != nil
}

// Carries reports whether the session has become a carrier.
func (s *Session) Carries() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.over
}

// Start answers pings, sends its own, and calls handle for each other message, one at a
// time. It calls ended once, when the session has ended, or the carrier that it became,
// before an Observer hears of that.
func (s *Session) Start(handle func(Control), ended func(error)) {
	s.handle = handle
	s.mu.Lock()
	s.ended = ended
	s.heard = time.Now()
	s.timer = time.AfterFunc(s.cfg.PingAfter, s.look)
	s.mu.Unlock()
	go s.c.watch()
	if err := s.Err(); err != nil {
		s.end(err)
	}
}

// end is called when the carrier is closed.
func (s *Session) end(err error) {
	s.stopPings()
	s.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.mu.Unlock()
	if ended != nil {
		ended(err)
	}
}

func (s *Session) stopPings() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// receive acts on a message of the peer. The watcher calls it.
func (s *Session) receive(payload []byte) error {
	if err := s.hear(); err != nil {
		return err
	}
	m, err := decodeControl(payload)
	switch {
	case err != nil:
		return err
	case m.Kind == controlPing:
		_ = s.Send(Control{Kind: controlPong}) // not after an OPEN, which may just have been sent
	case m.Kind != controlPong:
		s.handle(m)
	}
	return nil
}

// hear notes that the peer is alive. It is a violation if that was too often.
func (s *Session) hear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if s.heard.Sub(s.minute) >= time.Minute {
		s.minute, s.received = s.heard, 0
	}
	if s.received++; s.cfg.Most > 0 && s.received > s.cfg.Most {
		return violation("more than %d messages in a minute", s.cfg.Most)
	}
	return nil
}

// look pings a silent peer, and ends the session of one that does not answer.
func (s *Session) look() {
	s.mu.Lock()
	if s.timer == nil {
		s.mu.Unlock()
		return
	}
	silent, next := time.Since(s.heard), s.cfg.PingAfter
	ping := silent >= s.cfg.PingAfter
	switch {
	case silent >= s.cfg.PingAfter+pingTimeout:
		s.mu.Unlock()
		s.finish(&Error{Code: TimedOut, Message: "the peer does not answer pings"}, keepQuiet)
		return
	case ping:
		next += pingTimeout
	}
	s.timer.Reset(next - silent)
	s.mu.Unlock()
	if ping {
		_ = s.Send(Control{Kind: controlPing})
	}
}

// Send sends a message. It waits for those before it, and for the peer to accept it,
// which it must do in time.
func (s *Session) Send(m Control) error {
	c := s.c
	if err := s.silenced(); err != nil {
		return err // a Close would take the right to write for a Write that is blocked
	}
	if err := c.takeWrite(); err != nil {
		return err
	}
	defer func() { <-c.wsem }()
	if err := s.silenced(); err != nil {
		return err
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(pingTimeout))
	if _, err := c.nc.Write(controlFrame(FrameControl, m.append)); err != nil {
		c.fail(cutOff(err), keepQuiet)
		return c.Err()
	}
	_ = c.nc.SetWriteDeadline(time.Time{})
	return nil
}

// silenced returns why nothing can be said any more, or nil.
func (s *Session) silenced() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.err == nil && s.over {
		return errOver
	}
	return s.c.err
}

// Err says why the session, or the carrier that it became, has ended, and nil before.
func (s *Session) Err() error { return s.c.Err() }

// Abort ends the session and says why to the peer. A carrier that it has become goes on.
func (s *Session) Abort(reason error) { s.finish(cutOff(reason), tellPeer) }

// Close ends the session. A carrier that it has become goes on.
func (s *Session) Close() error {
	s.finish(cutOff(net.ErrClosed), keepQuiet)
	return nil
}

func (s *Session) finish(reason *Error, tell telling) {
	s.c.failIf(func() bool { return !s.over }, reason, tell)
}

// opened notes that an OPEN was sent or has come, of which only a ping leaves the session
// as it is; the carrier's mu is held.
func (s *Session) opened(network string, role Role) {
	if s == nil || s.over || network == NetworkPing {
		return
	}
	s.over, s.heedless = true, role == Acceptor
	s.stopPings()
}

// answered notes the answer to an OPEN of this side; the carrier's mu is held.
func (s *Session) answered() {
	if s != nil {
		s.heedless = s.over
	}
}

// hears reports whether a message may come; the carrier's mu is held.
func (s *Session) hears() bool { return s != nil && !s.heedless }

// takesOpen reports whether an OPEN may be sent, on a carrier that may have no session.
func (s *Session) takesOpen() bool { return s == nil || s.opens }
