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
	h := startHub(t)
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil"))
	config.NextProtos = []string{"h2"}
	var conns []*tls.Conn
	h.conns.mu.Lock()
	h.conns.streams["evil"] = maxSessions*maxStreams - 1 // instead of as many handshakes
	h.conns.mu.Unlock()
	for range 2 {
		conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		// The one that is refused may be closed already.
		_, _ = conn.Write([]byte(http2.ClientPreface))
		_ = http2.NewFramer(conn, conn).WriteSettings()
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
		return h.conns.streams["evil"] == maxSessions*maxStreams-1 && h.conns.streams["cluster1"] == 1
	})
}
