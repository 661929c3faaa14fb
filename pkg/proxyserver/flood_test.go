package proxyserver

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/clienthello"
)

// from dials address from one of loopback's addresses.
func from(ip net.IP) *net.Dialer {
	return &net.Dialer{Timeout: testTimeout, LocalAddr: &net.TCPAddr{IP: ip}}
}

// TestFloodBesideAgents sends ClientHellos to the agents' port beside agents that
// connect again and a client that goes on dialing. Both must be served as if
// there was no flood; how fast is logged.
func TestFloodBesideAgents(t *testing.T) {
	h := startHub(t)
	h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	address := h.Addrs().Agent.String()
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("cluster1"))
	config.NextProtos = []string{carrier.ALPN}
	hello := clienthello.First(t, config)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var sent atomic.Int64
	wg.Go(func() { clienthello.Flood(ctx, address, hello, &sent) })
	var dials []time.Duration
	dialer := h.dialer(t)
	wg.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			conn, err := dialer.DialContext(t.Context(), "tcp", "cluster1:443")
			if err != nil {
				t.Errorf("a dial beside the flood: %v", err)
				return
			}
			dials = append(dials, time.Since(began))
			_ = conn.Close()
		}
	})
	eventually(t, "the flood is at work", func() bool { return sent.Load() > 500 })

	began := time.Now()
	var back sync.WaitGroup
	for i := range 100 {
		back.Go(func() {
			raw, err := from(net.IPv4(127, 16, 0, byte(1+i))).Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer raw.Close()
			if err := tls.Client(raw, config.Clone()).HandshakeContext(t.Context()); err != nil {
				t.Errorf("an agent's handshake beside the flood: %v", err)
			}
		})
	}
	back.Wait()
	elapsed := time.Since(began)
	stop()
	wg.Wait()
	slices.Sort(dials)
	t.Logf("beside %d ClientHellos, 100 agents were back after %s; %d dials: p50 %s, p99 %s",
		sent.Load(), elapsed, len(dials), dials[len(dials)/2], dials[len(dials)*99/100])
}
