package frames

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errorChannel is the channel for errors of remote commands by WebSocket.
const errorChannel = 3

// Why payload cannot be followed.
var (
	errWebSocket = errors.New("the WebSocket has frames that are compressed or of no known kind")
	errSPDY      = errors.New("the SPDY connection has frames that are of no known kind, too long or too many")
	errForeign   = errors.New("the SPDY connection has data of a stream that the user has not opened")
	errDirection = errors.New("the connection has data of a stream in the direction that the stream does not have")
	errBase64    = errors.New("the WebSocket has messages that should be base64 and are not")
	errProtocol  = errors.New("the connection has another protocol than SPDY and WebSocket")
)

// Follower follows one connection. Its methods may be called at the same time, those for
// one direction one after the other.
type Follower struct {
	mu sync.Mutex
	// web is nil without WebSocket, and spdy without SPDY.
	web, webFromUser *webReader
	spdy             *spdyConn
	// channels says that messages have channels; status that errors are a Status, and text
	// that messages are base64.
	channels, status, text bool
	// onLost is called when payload cannot be followed any more, and missed says that it was.
	onLost func(error)
	missed bool
}

// New returns a Follower for the connection that begins behind an answer with these
// headers. command says that the connection is one of exec or attach, and not
// port-forward or something else.
func New(answer http.Header, command bool) *Follower {
	f := &Follower{}
	switch protocol := answer.Get("Sec-Websocket-Protocol"); {
	case strings.EqualFold(answer.Get("Upgrade"), "SPDY/3.1"):
		f.spdy = newSPDY()
		version := answer.Get("X-Stream-Protocol-Version")
		f.status = command && (version == "v4.channel.k8s.io" || version == "v5.channel.k8s.io")
	case !strings.EqualFold(answer.Get("Upgrade"), "websocket"):
	case strings.HasPrefix(protocol, "SPDY/3.1+"):
		f.web, f.webFromUser, f.spdy = &webReader{}, &webReader{}, newSPDY()
		f.web.onData = func(p []byte) { follow(p, f.spdy.toUser.next) }
		f.webFromUser.onData = func(p []byte) { follow(p, f.spdy.fromUser.next) }
	default:
		f.web, f.channels = &webReader{}, command
		f.status = protocol == "v4.channel.k8s.io" || protocol == "v5.channel.k8s.io" || protocol == "v4.base64.channel.k8s.io"
		f.text = strings.HasSuffix(protocol, "base64.channel.k8s.io")
	}
	return f
}

// follow calls next until p is used up.
func follow(p []byte, next func([]byte) int) {
	for len(p) > 0 {
		p = p[next(p):]
	}
}

// FromUser follows what the user has sent.
func (f *Follower) FromUser(p []byte) {
	reader := f.webFromUser
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case reader != nil:
		follow(p, reader.next)
	case f.web == nil && f.spdy != nil:
		follow(p, f.spdy.fromUser.next)
	}
	f.check()
}

// ToUser follows what is sent to the user.
func (f *Follower) ToUser(p []byte) {
	if f.web == nil && f.spdy == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	follow(p, f.next)
	f.check()
}

// Until is ToUser for the part of p after which a Farewell may be written. If that is
// nowhere, all of p is followed and ok is false.
func (f *Follower) Until(p []byte) (n int, ok bool) {
	if f.web == nil && f.spdy == nil {
		return 0, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(p) && !f.between() {
		n += f.next(p[n:])
	}
	f.check()
	return n, f.between()
}

// next follows p to the end of a frame, or to its own.
func (f *Follower) next(p []byte) int {
	if f.web != nil {
		return f.web.next(p)
	}
	return f.spdy.toUser.next(p)
}

// between reports whether a frame may begin.
func (f *Follower) between() bool {
	return (f.web == nil || f.web.message()) && (f.spdy == nil || f.spdy.toUser.between())
}

// Farewell returns the last frames to the user, with a message. It has none if all streams have
// ended already. ok is false if the user cannot be told: the protocol has no such frames, or the
// Follower is lost.
func (f *Follower) Farewell(status *metav1.Status) (last []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	message := []byte(status.Message)
	if f.status {
		if encoded, err := json.Marshal(status); err == nil {
			message = encoded
		}
	}
	switch {
	case f.spdy != nil && f.spdy.isLost():
		return nil, false
	case f.spdy != nil && f.web == nil:
		return f.spdy.farewell(message), true
	case f.spdy != nil:
		var all []byte
		if inner := f.spdy.farewell(message); len(inner) > 0 {
			all = appendFrame(all, opBinary, inner)
		}
		return appendClose(all, closeNormal, ""), true
	case f.web == nil:
		return nil, false
	case !f.channels && status.Code == http.StatusServiceUnavailable: // of a moment
		return appendClose(nil, closeGoingAway, status.Message), true
	case !f.channels:
		return appendClose(nil, closePolicy, status.Message), true
	case f.text:
		encoded := base64.StdEncoding.EncodeToString(message)
		return appendClose(appendFrame(nil, opText, []byte{'0' + errorChannel}, []byte(encoded)), closeNormal, ""), true
	}
	return appendClose(appendFrame(nil, opBinary, []byte{errorChannel}, message), closeNormal, ""), true
}

// lose says once that payload cannot be followed.
func (f *Follower) lose(err error) {
	if f.onLost == nil || f.missed {
		return
	}
	f.missed = true
	f.onLost(err)
}

// check looks whether the frames so far were understood.
func (f *Follower) check() {
	switch {
	case f.onLost == nil || f.missed:
	case f.spdy != nil && f.spdy.isLost():
		f.lose(errSPDY)
	case f.web != nil && f.web.strange || f.webFromUser != nil && f.webFromUser.strange:
		f.lose(errWebSocket)
	}
}
