package proxyserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestFlappingAgents lets 100 agents come and go every second beside a client of
// another cluster. Its dials must all succeed, and nothing must be left of the
// agents that went; what the dials take is logged.
func TestFlappingAgents(t *testing.T) {
	const agents = 100
	h := startHub(t)
	h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var came atomic.Int32
	for i := range agents {
		cluster := fmt.Sprint("flapping-", i)
		options := grpc.WithTransportCredentials(credentials.NewTLS(h.tlsFor(t, h.agentCA, identity.AgentCommonName(cluster))))
		wg.Go(func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for ctx.Err() == nil {
				if h.visit(ctx, cluster, options) == nil {
					came.Add(1)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	dialer := h.dialer(t)
	var dials []time.Duration
	for (came.Load() < agents+agents/2 || len(dials) == 0) && !t.Failed() {
		began := time.Now()
		conn, err := dialer.DialContext(t.Context(), "tcp", "cluster1:443")
		if err != nil {
			t.Fatalf("a dial beside flapping agents: %v", err)
		}
		dials = append(dials, time.Since(began))
		exchange(t, conn, "x", "cluster1:x")
		_ = conn.Close()
	}
	stop()
	wg.Wait()
	slices.Sort(dials)
	t.Logf("beside %d agents that came and went, %d dials: p50 %s, p99 %s", came.Load(), len(dials), dials[len(dials)/2], dials[len(dials)*99/100])
	eventually(t, "nothing is left of the agents", func() bool {
		h.registry.mu.RLock()
		defer h.registry.mu.RUnlock()
		return len(h.registry.sessions) == 1 && len(h.registry.clusters) == 1 && len(h.registry.names) == 1 && h.backends() == 1
	})
}

// visit connects as an agent and goes away at once.
func (h *testHub) visit(ctx context.Context, cluster string, options ...grpc.DialOption) error {
	conn, err := grpc.NewClient(h.Addrs().Agent.String(), options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, cluster,
		header.AgentIdentifiers, identity.Identifiers(identity.Hosts(cluster, identity.DefaultAgentNamespace)))
	stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	_, err = stream.Header()
	return err
}
