package proxyapi

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/frames"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
)

var (
	webSocketAnswer = http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}
	spdyAnswer      = http.Header{"Upgrade": {"SPDY/3.1"}}
)

// slowUser is a session whose user reads slowly: the 256 KiB that he was shown are on their way
// still. They are the payload of one frame, which has a header before it. cancel is called when the
// session's request is canceled.
func slowUser(t *testing.T, answer http.Header, header []byte, cancel func(*session.Conn)) (c *session.Conn, user net.Conn, shown []byte) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	user, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := user.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetWriteBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	c = &session.Conn{Conn: conn, Session: &session.Session{}, Follower: frames.New(answer, true), Begun: make(chan struct{}), Over: make(chan struct{})}
	c.Cancel = func() { cancel(c) }
	c.Session.Why.Store(session.EndedStatus())
	shown = append(header, make([]byte, 256<<10)...)
	if _, err := c.Write(shown); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }() // as the relay reads
	return c, user, shown
}

// message begins a message of 256 KiB.
func message() []byte { return []byte{0x82, 127, 0, 0, 0, 0, 0, 4, 0, 0} }

// TestFarewellIsNotOvertaken has the cluster's side of a session fail while its user is told why it
// ends.
func TestFarewellIsNotOvertaken(t *testing.T) {
	canceled := make(chan struct{}, 9)
	c, user, shown := slowUser(t, webSocketAnswer, message(), func(*session.Conn) { canceled <- struct{}{} })
	c.End()
	aborted := make(chan struct{})
	go func() { connect.Abort(c); close(aborted) }()
	got, err := io.ReadAll(user)
	if err != nil || !bytes.HasPrefix(got, shown) || !strings.Contains(string(got[min(len(got), len(shown)):]), session.ErrEnded.Error()) {
		t.Errorf("the user has read %d bytes of %d and more, %v; want all, and why the session has ended", len(got), len(shown), err)
	}
	user.Close()
	<-aborted
	<-canceled
}

// TestEndDoesNotOvertake ends sessions of which the cluster has sent all.
func TestEndDoesNotOvertake(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.Header
		header []byte
		ended  bool // the cluster has ended its direction
	}{
		"WebSocket": {webSocketAnswer, message(), true},
		// The last frame of the only stream; it is the user who ends connections of SPDY.
		"SPDY": {spdyAnswer, []byte{0, 0, 0, 1, 1, 4, 0, 0}, false},
	} {
		canceled := make(chan struct{}, 9)
		c, user, shown := slowUser(t, tc.answer, tc.header, func(c *session.Conn) { connect.Abort(c); canceled <- struct{}{} })
		if tc.ended {
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		c.End()
		if got, err := io.ReadAll(user); err != nil || !bytes.Equal(got, shown) {
			t.Errorf("%s: the user has read %d bytes of %d, %v; want all, and the end", name, len(got), len(shown), err)
		}
		user.Close()
		<-canceled
	}
}
