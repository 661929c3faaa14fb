package proxyapi

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// resets sends up to n requests on one connection and takes each back at once. It
// ends earlier when the server has had enough, and says how many there were.
func resets(conn io.Writer, authority, path, token string, n int) (sent int, err error) {
	var out, block bytes.Buffer
	framer, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	out.WriteString(http2.ClientPreface)
	err = errors.Join(framer.WriteSettings(), framer.WriteSettingsAck())
	for ; err == nil && sent < n; sent++ {
		block.Reset()
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: authority},
			{Name: ":path", Value: path}, {Name: "authorization", Value: "Bearer " + token}} {
			err = errors.Join(err, encoder.WriteField(field))
		}
		id := uint32(2*sent + 1)
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}),
			framer.WriteRSTStream(id, http2.ErrCodeCancel))
		if err == nil && (sent%50 == 49 || sent == n-1) {
			_, err = out.WriteTo(conn)
		}
	}
	return sent, err
}

// TestRapidReset has a user take requests back as fast as he can
// (CVE-2023-44487). Another user of the same cluster, and so of the same
// connection to it, must not notice.
func TestRapidReset(t *testing.T) {
	long.Test(t)
	const connections, each, good = 4, 1000, 50
	w := start(t)
	w.api.User("eve", "eve")
	w.api.User("jane", "jane")
	w.api.Allow("* * clusters/proxy cluster1")
	var waiting atomic.Int64
	flooded := make(chan struct{})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Remote-User") == "eve" {
			waiting.Add(1)
			defer waiting.Add(-1)
			<-r.Context().Done()
		}
		if r.URL.Query().Has("watch") {
			_ = http.NewResponseController(rw).Flush()
			<-flooded
			_, _ = io.WriteString(rw, "event")
		}
	}), "cluster1")
	client := w.client()
	jane := http.Header{"Authorization": {"Bearer jane"}}
	get(t, client, w.url+"/cluster1/version", jane)
	watch, err := w.client("http/1.1").Get(w.url + "/cluster1/api/v1/pods?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	host := strings.TrimPrefix(w.url, "https://")
	config := pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "proxy-api-ca.crt")}).ClientConfig("127.0.0.1")
	config.NextProtos = []string{"h2"}
	var attackers sync.WaitGroup
	for range connections {
		attackers.Go(func() {
			for left := each; left > 0; {
				conn, err := tls.Dial("tcp", host, config)
				if err != nil {
					t.Error(err)
					return
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				n, _ := resets(conn, host, "/cluster1/api/v1/pods", "eve", left)
				left -= max(n, 1)
				_ = conn.Close()
			}
		})
	}
	for range good {
		if resp, body := get(t, client, w.url+"/cluster1/version", jane); resp.StatusCode != http.StatusOK {
			t.Errorf("jane: %d %s, want 200", resp.StatusCode, body)
		}
	}
	attackers.Wait()
	close(flooded)
	if event, err := io.ReadAll(watch.Body); err != nil || string(event) != "event" {
		t.Errorf("a watch that was open all the while gave %q, %v", event, err)
	}
	eventually(t, func() bool { // all was taken back there too
		return waiting.Load() == 0
	})
	if n := w.server.agents.Connections("cluster1"); n > agentclient.SharedConns+agentclient.ReadConns+1 {
		t.Errorf("there are %d connections to the cluster, want no more than for any other load", n)
	}
	if resp, body := get(t, client, w.url+"/cluster1/version", jane); resp.StatusCode != http.StatusOK {
		t.Errorf("jane afterwards: %d %s, want 200", resp.StatusCode, body)
	}
}

// TestSlowClients opens connections on which handshakes and headers never end,
// though a byte comes now and then. They must be cut off, and meanwhile hold up
// nobody.
func TestSlowClients(t *testing.T) {
	const each = 50
	synctest.Test(t, func(t *testing.T) {
		network, config := inMemory(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		var slow sync.WaitGroup
		began := time.Now()
		hold := func(conn io.ReadWriteCloser, first string) {
			slow.Go(func() {
				defer conn.Close()
				ended := make(chan struct{})
				go func() { defer close(ended); _, _ = io.Copy(io.Discard, conn) }()
				_, _ = io.WriteString(conn, first)
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for {
					select {
					case <-ended:
						return
					case <-tick.C:
						_, _ = io.WriteString(conn, "x")
					}
				}
			})
		}
		dial := func() (*tls.Conn, io.ReadWriteCloser) {
			t.Helper()
			raw, err := network.Dial(t.Context(), "tcp", "proxy-api:443")
			if err != nil {
				t.Fatal(err)
			}
			own := config.Clone()
			own.NextProtos = []string{"http/1.1"}
			return tls.Client(raw, own), raw
		}
		for range each {
			_, raw := dial()
			hold(raw, "\x16\x03\x01\x7f\x00") // the begin of a handshake
			conn, _ := dial()
			if err := conn.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			hold(conn, "GET /cluster1/version HTTP/1.1\r\nHost: x\r\nX-")
		}
		good, _ := dial()
		defer good.Close()
		fmt.Fprint(good, "GET /cluster1/version HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(good), nil)
		if err != nil || resp.StatusCode != http.StatusOK || time.Since(began) > time.Second {
			t.Errorf("somebody else was answered %v, %v after %s, want 200 within a second", resp, err, time.Since(began))
		}
		slow.Wait()
		if took := time.Since(began); took > readHeaderTimeout+time.Second {
			t.Errorf("the last one was cut off after %s", took)
		}
	})
}
