package carrier

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrNoControl is the error of DialSession if the peer speaks carriers, but takes no
// control sessions: it is a proxy server of an older version.
var ErrNoControl = errors.New("the proxy server takes no control session on a carrier")

// SessionConfig configures a Session. Zero values mean the defaults.
type SessionConfig struct {
	// PingAfter is how long the peer is silent before it is pinged, and PingTimeout how
	// long it may go on with that, and how long it may take to accept a message.
	// Default 30 s and 10 s.
	PingAfter, PingTimeout time.Duration
	// Most is how many messages the peer may send within a minute; 0 means that there
	// is no limit.
	Most int
}

// Session is one end of a control session: a transport of its own, on which two peers
// send each other messages about their carriers. It has one goroutine, that of Serve,
// and no buffers.
type Session struct {
	nc   net.Conn
	cfg  SessionConfig
	peer Hello

	// The holder of wsem may write to nc: for one frame at a time, and on the accepting
	// side until it has answered HELLO.
	wsem chan struct{}

	mu       sync.Mutex
	heard    time.Time // when the peer said something last
	minute   time.Time // since when received counts
	received int
	timer    *time.Timer // nil unless Serve runs
	err      error       // why the session has ended
}

func newSession(nc net.Conn, cfg SessionConfig) *Session {
	if cfg.PingAfter == 0 {
		cfg.PingAfter = 30 * time.Second
	}
	if cfg.PingTimeout == 0 {
		cfg.PingTimeout = 10 * time.Second
	}
	return &Session{nc: nc, cfg: cfg, wsem: make(chan struct{}, 1)}
}

// DialSession asks the peer of a transport that this side dialed for a control session,
// and waits for the answer, as long as ctx allows. Of an older peer it is ErrNoControl.
// With an error the transport is closed.
func DialSession(ctx context.Context, nc net.Conn, hello Hello, cfg SessionConfig) (*Session, error) {
	hello.Version = Version
	hello.Features = append([]string{FeatureName, FeatureControl}, hello.Features...)
	if len(controlFrame(FrameHello, hello.append)) > smallBuffer {
		_ = nc.Close()
		return nil, ErrNoControl
	}
	if err := writeHello(ctx, nc, hello); err != nil {
		return nil, err
	}
	answer, err := ReadHello(ctx, nc)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(answer.Features, FeatureControl) {
		_ = nc.Close()
		return nil, ErrNoControl
	}
	s := newSession(nc, cfg)
	s.peer = answer
	return s, nil
}

// AcceptSession makes a control session of a transport from which a HELLO was read
// that asks for one. Answer or Close must follow; messages wait for the answer.
func AcceptSession(nc net.Conn, hello Hello, cfg SessionConfig) *Session {
	s := newSession(nc, cfg)
	s.peer = hello
	s.wsem <- struct{}{}
	return s
}

// Answer confirms a session that was made by AcceptSession, as long as ctx allows.
// With an error the transport is closed.
func (s *Session) Answer(ctx context.Context, answer Hello) error {
	defer func() { <-s.wsem }()
	if err := s.Err(); err != nil {
		return err
	}
	answer.Version = Version
	answer.Features = append([]string{FeatureName, FeatureControl}, answer.Features...)
	return writeHello(ctx, s.nc, answer)
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

// Serve answers pings, sends its own, and calls handle for each other message, one at a
// time, until the session ends. It returns why that was.
func (s *Session) Serve(handle func(Control)) error {
	s.mu.Lock()
	s.heard = time.Now()
	s.timer = time.AfterFunc(s.cfg.PingAfter, s.look)
	s.mu.Unlock()
	for {
		t, payload, err := readFrame(s.nc)
		if err == nil {
			err = s.receive(t, payload, handle)
		}
		if err == nil {
			continue
		}
		var broken *Error
		if errors.As(err, &broken) && broken.Code == Protocol && !broken.Reset {
			s.Abort(err)
		}
		return s.end(err)
	}
}

func (s *Session) receive(t FrameType, payload []byte, handle func(Control)) error {
	if err := s.hear(); err != nil {
		return err
	}
	switch t {
	case FrameControl:
		m, err := decodeControl(payload)
		switch {
		case err != nil:
			return violation("%v", err)
		case m.Kind == controlPing:
			return s.Send(Control{Kind: controlPong})
		case m.Kind != controlPong:
			handle(m)
		}
		return nil
	case FrameReset:
		e, err := decodeError(payload, true)
		if err != nil {
			return violation("%v", err)
		}
		return e
	}
	return violation("frame of type %d on a control session", t)
}

// hear notes that the peer said something, and whether that was too often.
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
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	silent, next := time.Since(s.heard), s.cfg.PingAfter
	ping := silent >= s.cfg.PingAfter
	switch {
	case silent >= s.cfg.PingAfter+s.cfg.PingTimeout:
		s.mu.Unlock()
		_ = s.end(&Error{Code: TimedOut, Message: "the peer does not answer pings"})
		return
	case ping:
		next += s.cfg.PingTimeout
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
	s.wsem <- struct{}{}
	defer func() { <-s.wsem }()
	if err := s.Err(); err != nil {
		return err
	}
	_ = s.nc.SetWriteDeadline(time.Now().Add(s.cfg.PingTimeout))
	if _, err := s.nc.Write(controlFrame(FrameControl, m.append)); err != nil {
		return s.end(err)
	}
	return nil
}

// Err says why the session has ended, and nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Abort ends the session and says why to the peer, unless something else is being sent.
func (s *Session) Abort(reason error) {
	if !s.finish(reason) {
		return
	}
	select {
	case s.wsem <- struct{}{}:
		Refuse(s.nc, reason)
		<-s.wsem
	default:
		_ = s.nc.Close()
	}
}

// Close ends the session.
func (s *Session) Close() error {
	_ = s.end(net.ErrClosed)
	return nil
}

// end closes the transport, and returns why the session has ended.
func (s *Session) end(err error) error {
	if s.finish(err) {
		// TLS waits for a blocked write before it closes.
		go func() { _ = s.nc.Close() }()
	}
	return s.Err()
}

// finish notes why the session ends, and reports whether that is news.
func (s *Session) finish(reason error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.err = cutOff(reason)
	if s.timer != nil {
		s.timer.Stop()
	}
	return true
}
