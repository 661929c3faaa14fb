package chain

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/rawhttp"
)

// ok is a kube-apiserver that answers everything.
var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// TestKilledInTheMiddle has a connection by CONNECT, with bytes on their way in
// both directions, and one of the processes killed.
func TestKilledInTheMiddle(t *testing.T) {
	for _, victim := range []string{"target", "agent", "proxy server", "proxy API", "client"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			w := start(t, ok, options{})
			client, below := w.connect(cluster + ":443")
			if _, err := io.WriteString(client, "up"); err != nil {
				t.Fatal(err)
			}
			var target net.Conn
			select {
			case target = <-w.targets:
			case <-time.After(testTimeout):
				t.Fatal("nothing comes to the target")
			}
			defer target.Close()
			if _, err := io.ReadFull(target, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(target, "down"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(client, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			switch victim {
			case "target":
				_ = target.(*net.TCPConn).SetLinger(0)
				target.Close()
			case "agent":
				w.agent.kill()
			case "proxy server":
				w.server.kill()
			case "proxy API":
				w.api.kill()
			case "client":
				below.Close()
			}
			if victim != "client" {
				wantCutOff(t, "the client", client)
			}
			// The target has a TCP connection of the agent's, whose kernel has no way to
			// say that it ends because the agent was killed.
			if victim != "target" && victim != "agent" {
				wantCutOff(t, "the target", target)
			}
		})
	}
}

// TestUploadIsCutOff has a client die in the middle of a request's body: what the
// kube-apiserver reads must not be a body that is complete.
func TestUploadIsCutOff(t *testing.T) {
	type arrival struct {
		body string
		err  error
	}
	arrived, bodies := make(chan struct{}, 10), make(chan arrival, 10)
	w := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		half := make([]byte, 4)
		_, err := io.ReadFull(r.Body, half)
		arrived <- struct{}{}
		rest, restErr := io.ReadAll(r.Body)
		if err == nil {
			err = restErr
		}
		bodies <- arrival{string(half) + string(rest), err}
	}), options{})
	want := func(t *testing.T, cut func()) {
		t.Helper()
		select {
		case <-arrived:
		case <-time.After(testTimeout):
			t.Fatal("half of a body does not arrive")
		}
		cut()
		select {
		case got := <-bodies:
			if got.err == nil {
				t.Errorf("the kube-apiserver got %q as a whole", got.body)
			}
		case <-time.After(testTimeout):
			t.Error("the kube-apiserver still waits")
		}
	}
	const chunk = "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
	for name, sent := range map[string][2]string{"Content-Length": {"Content-Length: 100000\r\n\r\nhalf", ""}, "chunked": {chunk, ""}, "in a chunk": {chunk, "64\r\nof"}} {
		for how, cut := range map[string]func(conn *tls.Conn, raw net.Conn){
			"killed": func(_ *tls.Conn, raw net.Conn) { raw.Close() },
			"closed": func(conn *tls.Conn, _ net.Conn) { conn.Close() },
			"reset":  func(_ *tls.Conn, raw net.Conn) { _ = raw.(*net.TCPConn).SetLinger(0); raw.Close() },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				conn, raw := w.dial()
				fmt.Fprintf(conn, "POST /%s/api/v1/upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s", cluster, token, sent[0])
				want(t, func() {
					if _, err := io.WriteString(conn, sent[1]); err != nil {
						t.Error(err)
					}
					cut(conn, raw)
				})
			})
		}
	}
	for name, length := range map[string]int64{"HTTP/2": -1, "HTTP/2 with Content-Length": 100_000} {
		t.Run(name, func(t *testing.T) {
			config := w.user.ClientConfig("127.0.0.1")
			config.NextProtos = []string{"h2"}
			raw, err := net.Dial("tcp", w.address)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := rawhttp.ClientConn(t.Context(), tls.Client(raw, config))
			if err != nil {
				t.Fatal(err)
			}
			body, in := io.Pipe()
			defer in.Close()
			r := w.request(http.MethodPost, "/api/v1/upload", body)
			r.ContentLength = length
			go func() {
				if resp, err := conn.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			}()
			if _, err := io.WriteString(in, "half"); err != nil {
				t.Fatal(err)
			}
			want(t, func() { raw.Close() })
		})
	}
}

// TestShortUploadIsCutOff has a client die in the middle of a body that is kept to be
// sent again (httprelay.RepeatBody): the kube-apiserver does not see it at all.
func TestShortUploadIsCutOff(t *testing.T) {
	bodies := make(chan string, 10)
	w := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			bodies <- string(body)
		}
	}), options{})
	conn, _ := w.dial()
	fmt.Fprintf(conn, "POST /%s/api/v1/upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 8\r\n\r\nhalf", cluster, token)
	conn.Close()
	conn, _ = w.dial()
	fmt.Fprintf(conn, "POST /%s/api/v1/upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: 5\r\n\r\nwhole", cluster, token)
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Fatalf("answered %q, %v, want 200", answer, err)
	}
	if got := <-bodies; got != "whole" {
		t.Errorf("the kube-apiserver got %q, want the whole body only", got)
	}
}

// TestUpgradeIsCutOff has a connection after an upgrade, as exec over SPDY has
// one, and looks at what the client's socket reads: SPDY itself takes any end for
// a clean one, so that is all that a client can be told.
func TestUpgradeIsCutOff(t *testing.T) {
	for _, victim := range []string{"kube-apiserver", "agent", "proxy server", "client"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			backends := make(chan net.Conn, 1)
			w := start(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/exec") {
					return
				}
				conn, _, err := http.NewResponseController(rw).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello")
				backends <- conn
			}), options{})
			client, below := w.dial()
			fmt.Fprintf(client, "POST /%s/api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", cluster, token)
			for answer := ""; !strings.HasSuffix(answer, "hello"); {
				one := make([]byte, 1)
				if _, err := io.ReadFull(client, one); err != nil {
					t.Fatalf("%v after %q", err, answer)
				}
				answer += string(one)
			}
			backend := <-backends
			defer backend.Close()
			switch victim {
			case "kube-apiserver":
				backend.(*tls.Conn).NetConn().Close() // without close_notify
			case "agent":
				w.agent.kill()
			case "proxy server":
				w.server.kill()
			case "client":
				below.Close()
				// It has a TLS connection of the agent's.
				wantReset(t, "the kube-apiserver", backend.(*tls.Conn).NetConn())
				return
			}
			wantReset(t, "the client", below)
		})
	}
}

// wantReset reads from a socket, below TLS, which must be reset.
func wantReset(t *testing.T, who string, conn net.Conn) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, conn); ended <- err }()
	select {
	case err := <-ended:
		if !strings.Contains(fmt.Sprint(err), syscall.ECONNRESET.Error()) {
			t.Errorf("%s read %v, want a reset", who, err)
		}
	case <-time.After(testTimeout):
		t.Errorf("%s still waits", who)
	}
}
