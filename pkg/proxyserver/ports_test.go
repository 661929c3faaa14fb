package proxyserver

import (
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestSilentPeersDoNotBlockOthers opens more connections than there are places for
// handshakes and says nothing on them, or stops in the middle. An agent and a
// client must get in all the same.
func TestSilentPeersDoNotBlockOthers(t *testing.T) {
	h := startHub(t)
	for _, port := range []struct {
		name, address string
		config        *tls.Config
	}{
		{"agent port", h.Addrs().Agent.String(), h.tlsFor(t, h.agentCA, identity.AgentCommonName("c1"))},
		{"client port", h.clientAddr, h.clientTLS(t)},
	} {
		t.Run(port.name, func(t *testing.T) {
			for i := range 8 * runtime.GOMAXPROCS(0) {
				conn, err := net.Dial("tcp", port.address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if i%2 == 0 {
					continue
				}
				// The start of a ClientHello of 512 bytes that never ends.
				if _, err := conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1}); err != nil {
					t.Fatal(err)
				}
			}
			config := port.config.Clone()
			config.NextProtos = []string{carrier.ALPN}
			dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: newLimits().HandshakeTimeout / 2}, Config: config}
			conn, err := dialer.DialContext(t.Context(), "tcp", port.address)
			if err != nil {
				t.Fatalf("shaking hands beside silent peers: %v", err)
			}
			conn.Close()
		})
	}
}

// TestOlderAgentIsNamed wants the log to say what an agent of OCM's own cluster-proxy
// looks like, at the port of agents and for that failure alone.
func TestOlderAgentIsNamed(t *testing.T) {
	none := errors.New("tls: client didn't provide a certificate")
	for _, tc := range []struct {
		name   string
		agents bool
		err    error
		want   bool
	}{
		{"an agent", true, none, true},
		{"a client", false, none, false},
		{"an agent with an expired certificate", true, errors.New("tls: expired certificate"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &muxListener{agents: tc.agents}
			if got := m.explain(tc.err); strings.Contains(got.Error(), "an agent of an older release") != tc.want || !errors.Is(got, tc.err) {
				t.Errorf("explained as %q, names it: want %v", got, tc.want)
			}
		})
	}
}
