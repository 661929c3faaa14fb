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
)

// TestFarewellIsNotOvertaken has the cluster's side of a session fail while its user is told why it
// ends. The user reads slowly: all that he was sent is on its way still.
func TestFarewellIsNotOvertaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	user, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
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
	answer := http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}
	canceled := make(chan struct{}, 9)
	c := &sessionConn{Conn: conn, session: &session{}, follower: frames.New(answer, true), over: make(chan struct{}), cancel: func() { canceled <- struct{}{} }}
	c.session.why.Store(endedStatus())
	// A message of 256 KiB on channel 1.
	shown := append([]byte{0x82, 127, 0, 0, 0, 0, 0, 4, 0, 0, 1}, make([]byte, 256<<10-1)...)
	if _, err := c.Write(shown); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }() // as the relay reads
	c.end()
	aborted := make(chan struct{})
	go func() { connect.Abort(c); close(aborted) }()
	got, err := io.ReadAll(user)
	if err != nil || !bytes.HasPrefix(got, shown) || !strings.Contains(string(got[min(len(got), len(shown)):]), errEnded.Error()) {
		t.Errorf("the user has read %d bytes of %d and more, %v; want all, and why the session has ended", len(got), len(shown), err)
	}
	user.Close()
	<-aborted
	<-canceled
}
