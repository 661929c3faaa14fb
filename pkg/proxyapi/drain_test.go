package proxyapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// TestDrainEndsWatches drains while a watch is idle: that must look like
// the end of a watch, so that clients go on elsewhere without an error.
func TestDrainEndsWatches(t *testing.T) {
	w := start(t)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(rw, `{"type":"ADDED"}`)
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}), "cluster1")
	for _, protocol := range [][]string{nil, {"http/1.1"}} {
		resp, err := w.client(protocol...).Get(w.url + "/cluster1/api/v1/pods?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := bufio.NewReader(resp.Body)
		if line, err := body.ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
			t.Fatalf("the watch gave %q, %v; want ADDED", line, err)
		}
		defer func() {
			if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
				t.Errorf("the watch ended with %q, %v; want a clean end", rest, err)
			}
		}()
	}
	w.stop()
	if err := w.ended(); err != nil {
		t.Error(err)
	}
}

// TestDrainInTheMiddleOfAnEvent drains while an event is on its way. A watch must not look as if it
// was complete then, nor where that cannot be known.
func TestDrainInTheMiddleOfAnEvent(t *testing.T) {
	const protobuf = "application/vnd.kubernetes.protobuf;stream=watch"
	for name, tc := range map[string]struct {
		kind, encoding, sent string
		whole                bool
	}{
		"JSON":               {"application/json", "", "{}\n", true},
		"part of JSON":       {"application/json", "", "{}\n{", false},
		"protobuf":           {protobuf, "", "\x00\x00\x00\x02ab", true},
		"part of protobuf":   {protobuf, "", "\x00\x00\x00\x02ab\x00\x00\x00\x02a", false},
		"part of a length":   {protobuf, "", "\x00\x00\x00\x02ab\x00", false},
		"compressed":         {"application/json", "gzip", "{}\n", false},
		"CBOR, not followed": {"application/cbor-seq", "", "\xa0", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", tc.kind)
				if tc.encoding != "" {
					rw.Header().Set("Content-Encoding", tc.encoding)
				}
				_, _ = io.WriteString(rw, tc.sent)
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			}), "cluster1")
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/cluster1/api/v1/pods?watch=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept-Encoding", "gzip") // so that the client does not decompress
			resp, err := w.client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got := make([]byte, len(tc.sent))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != tc.sent {
				t.Fatalf("the watch gave %q, %v; want %q", got, err, tc.sent)
			}
			w.stop()
			if rest, err := io.ReadAll(resp.Body); (err == nil) != tc.whole || len(rest) > 0 {
				t.Errorf("the watch ended with %q, %v; want a clean end: %t", rest, err, tc.whole)
			}
			if err := w.ended(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDrainEndsWatchesByWebSocket drains while a watch by WebSocket has an event on its way: the
// client gets the whole event, and last a close message that sends it elsewhere.
func TestDrainEndsWatchesByWebSocket(t *testing.T) {
	w := start(t)
	rest := make(chan struct{})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05{\"a")
		<-rest
		fmt.Fprint(conn, "\"}\x81\x02{}")
		_, _ = io.Copy(io.Discard, buffer)
	}), "cluster1")
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), pkitest.Load(t, pki.Files{CA: w.dir + "/proxy-api-ca.crt"}).ClientConfig("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /cluster1/api/v1/pods?watch=true HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %v, %v; want 101", resp, err)
	}
	if _, err := reader.Peek(4); err != nil {
		t.Fatal(err)
	}
	w.stop()
	wait.Poll{Every: 10 * time.Millisecond, For: 20 * time.Second}.Until(t, "the proxy API drains", w.server.health.Draining)
	close(rest)
	const reason = "the proxy API stops: watch again"
	const event, last = "\x81\x05{\"a\"}", "\x88\x22\x03\xe9" + reason // 1001, going away
	if got, err := io.ReadAll(reader); !strings.HasPrefix(string(got), event) || !strings.HasSuffix(string(got), last) {
		t.Errorf("the watch ended with %q, %v; want %q first and %q last", got, err, event, last)
	}
	conn.Close()
	if err := w.ended(); err != nil {
		t.Error(err)
	}
}

// TestDrainBeforeTheAnswer drains while the cluster's answer to a watch by WebSocket is on its way:
// the close message comes behind the head of the answer, which httputil.ReverseProxy writes when it
// has taken the connection over.
func TestDrainBeforeTheAnswer(t *testing.T) {
	const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	draining, drain := context.WithCancel(t.Context())
	drain()
	answer := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		upgrade, leave := session.UpgradeWatch(draining, w, &scope.Scope{Upgraded: http.Header{"Upgrade": {"websocket"}}}, func() {})
		defer leave()
		conn, buffer, err := http.NewResponseController(upgrade).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		<-answer
		if _, err := buffer.WriteString(head); err != nil || buffer.Flush() != nil {
			t.Error("the head cannot be written")
		}
		_, _ = io.Copy(io.Discard, conn)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client has read %d bytes before the head, %v", n, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	close(answer)
	const last = "\x88\x22\x03\xe9the proxy API stops: watch again"
	if got, err := io.ReadAll(conn); string(got) != head+last || err != nil {
		t.Errorf("the client has read %q, %v; want %q", got, err, head+last)
	}
}
