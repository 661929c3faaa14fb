package agentclient

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
)

// tunnelled is a connection as package tunnel makes them, without a tunnel.
type tunnelled struct{ net.Conn }

func (c tunnelled) IsUnacknowledged() bool { return dial.IsUnacknowledged(c.Conn) }

// TestReadOfASilentConnection drops the packets of the connections to an agent. The next read,
// which is sent on one that reads have to themselves, is sent again on a new one, since nothing
// of it was acknowledged.
func TestReadOfASilentConnection(t *testing.T) {
	client, _ := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Came", r.Proto+" "+r.RemoteAddr)
	}))
	plain := client.options.Dial
	client.options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain(ctx, network, address)
		return tunnelled{conn}, err
	}
	read := func() (came string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.RoundTrip(r, cluster1, jane)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		return resp.Header.Get("Came")
	}
	var pooled string
	eventually(t, "a read has a connection of its own", func() bool {
		pooled = read()
		return strings.HasPrefix(pooled, "HTTP/1.1 ")
	})
	p := client.pool("cluster1")
	p.mu.Lock()
	for conn := range p.conns {
		carriertest.Swallow(t, conn.Conn.(tunnelled).Conn)
	}
	p.mu.Unlock()
	began := time.Now()
	if came := read(); came == pooled {
		t.Errorf("%q answers, which is silent", came)
	}
	// The kernel's own verdict takes a quarter of an hour.
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the read is answered after %s", took)
	}
}
