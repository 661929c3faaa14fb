package proxyserver

import (
	"crypto/tls"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestConnectionsWithoutStreams makes connections with one certificate on which it opens no
// stream: they count as well, and those of another cluster are taken.
func TestConnectionsWithoutStreams(t *testing.T) {
	h := startHub(t, func(o *Options) { o.MaxHandshakes = 1024 })
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil"))
	config.NextProtos = []string{"h2"}
	var conns []*tls.Conn
	for range maxSessions*maxStreams + 1 {
		conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
			t.Fatal(err)
		}
		if err := http2.NewFramer(conn, conn).WriteSettings(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one is refused", func() bool {
		_, body := h.scrape(t, "/metrics")
		return strings.Contains(body, `cluster_proxy_server_cluster_limits_total{limit="streams"} 1`)
	})
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	for _, conn := range conns {
		_ = conn.Close()
	}
	eventually(t, "the others are forgotten", func() bool {
		h.conns.mu.Lock()
		defer h.conns.mu.Unlock()
		return h.conns.streams["evil"] == 0 && h.conns.streams["cluster1"] == 1
	})
}
