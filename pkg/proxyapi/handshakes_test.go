package proxyapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestHandshakesAreBounded counts the handshakes that the port works on at a time
// while many are asked for.
func TestHandshakesAreBounded(t *testing.T) {
	w := start(t)
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := w.server.serving.ServerConfig(tls.RequestClientCert)
	var now, most atomic.Int32
	proceed := make(chan struct{})
	listener := w.server.secured(t.Context(), raw, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-proceed
		if base.GetConfigForClient != nil {
			return base.GetConfigForClient(hello)
		}
		return base, nil
	}})
	limit := 2 * runtime.GOMAXPROCS(0)
	count := 16 * limit
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	config := pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "door-ca.crt")}).ClientConfig("127.0.0.1")
	var clients sync.WaitGroup
	for range count {
		clients.Go(func() {
			conn, err := tls.Dial("tcp", raw.Addr().String(), config.Clone())
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})
	}
	for range count {
		proceed <- struct{}{}
	}
	clients.Wait()
	_ = listener.Close()
	served.Wait()
	if int(most.Load()) > limit {
		t.Errorf("the port worked on %d handshakes at a time, want %d at most", most.Load(), limit)
	}
}

// flood sends 2,000 ClientHellos a second from one address until ctx ends, and
// keeps the last 1,000 connections open. It counts them in sent.
func flood(ctx context.Context, address string, hello []byte, sent *atomic.Int64) {
	var kept []net.Conn
	defer func() {
		for _, conn := range kept {
			_ = conn.Close()
		}
	}()
	const each = 20
	tick := time.NewTicker(each * time.Second / 2000)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for range each {
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}).Dial("tcp", address)
			if err != nil {
				continue
			}
			_, _ = conn.Write(hello)
			sent.Add(1)
			if kept = append(kept, conn); len(kept) > 1000 {
				_ = kept[0].Close()
				kept = slices.Delete(kept, 0, 1)
			}
		}
	}
}

// firstFlight returns what a client with config says first.
func firstFlight(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _ = tls.Client(near, config).Handshake() }()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	return hello[:n]
}

// TestFloodBesideUsers sends ClientHellos beside users whose requests come on
// connections of their own. Each must be served; how fast is logged.
func TestFloodBesideUsers(t *testing.T) {
	w := start(t)
	w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
	client := w.client("http/1.1")
	client.Transport.(*http.Transport).DisableKeepAlives = true
	measure := func() []time.Duration {
		var took []time.Duration
		for range 100 {
			began := time.Now()
			if resp, body := get(t, client, w.url+"/cluster1/version", nil); resp.StatusCode != http.StatusOK {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took
	}
	alone := measure()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var sent atomic.Int64
	var flooding sync.WaitGroup
	hello := firstFlight(t, pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "door-ca.crt")}).ClientConfig("127.0.0.1"))
	flooding.Go(func() { flood(ctx, w.url[len("https://"):], hello, &sent) })
	eventually(t, func() bool { return sent.Load() > 500 })
	beside := measure()
	stop()
	flooding.Wait()
	t.Logf("100 requests on connections of their own: p50 %s, p99 %s; beside a flood of %d ClientHellos p50 %s, p99 %s", alone[50], alone[99], sent.Load(), beside[50], beside[99])
}
