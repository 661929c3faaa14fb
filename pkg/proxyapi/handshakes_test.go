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
	"open-cluster-management.io/cluster-proxy/test/testkit/clienthello"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
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
	config := pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "proxy-api-ca.crt")}).ClientConfig("127.0.0.1")
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

// TestFloodBesideUsers sends ClientHellos beside users whose requests come on
// connections of their own. Each must be served; how fast is logged.
func TestFloodBesideUsers(t *testing.T) {
	long.Test(t)
	w := start(t)
	w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
	client := w.client("http/1.1")
	client.Transport.(*http.Transport).DisableKeepAlives = true
	measure := func() []time.Duration {
		var took []time.Duration
		for range 100 {
			began := time.Now()
			if resp, body := get(t, client, w.url+"/cluster1/version", nil); resp.StatusCode != http.StatusOK {
				t.Errorf("answered %d %s, want 200", resp.StatusCode, body)
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
	hello := clienthello.First(t, pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "proxy-api-ca.crt")}).ClientConfig("127.0.0.1"))
	flooding.Go(func() { clienthello.Flood(ctx, w.url[len("https://"):], hello, &sent) })
	eventually(t, func() bool { return sent.Load() > 500 })
	beside := measure()
	stop()
	flooding.Wait()
	t.Logf("100 requests on connections of their own: p50 %s, p99 %s; beside a flood of %d ClientHellos p50 %s, p99 %s", alone[50], alone[99], sent.Load(), beside[50], beside[99])
}
