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
)

// clientHello returns what a client with config says first.
func clientHello(t *testing.T, config *tls.Config) []byte {
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

// from dials address from one of loopback's addresses.
func from(ip net.IP) *net.Dialer {
	return &net.Dialer{Timeout: testTimeout, LocalAddr: &net.TCPAddr{IP: ip}}
}

// flood sends 2,000 ClientHellos a second to address until ctx ends, and keeps
// the last 1,000 connections open. It counts them in sent.
func flood(ctx context.Context, address string, hello []byte, sent *atomic.Int64) {
	var held []net.Conn
	defer func() {
		for _, conn := range held {
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
			conn, err := from(net.IPv4(127, 9, 9, 9)).Dial("tcp", address)
			if err != nil {
				continue
			}
			_, _ = conn.Write(hello)
			sent.Add(1)
			if held = append(held, conn); len(held) > 1000 {
				_ = held[0].Close()
				held = slices.Delete(held, 0, 1)
			}
		}
	}
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
	hello := clientHello(t, config)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var sent atomic.Int64
	wg.Go(func() { flood(ctx, address, hello, &sent) })
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
