package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestDrainOfManyIdleConnections stops a server that has thousands of agents, and
// hundreds of clients' connections that carry nothing. All agents are told at
// once, and the drain ends when its time is over.
func TestDrainOfManyIdleConnections(t *testing.T) {
	const agents, connections = 2000, 150
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hub := newMemHub(t, dir)
		s, stop := hub.start("server-0")
		defer stop()
		agent := s.connect("cluster1", "agent", 2)
		defer agent.stop()
		var told atomic.Int32
		for i := range agents {
			session := &toldControl{fakeControl{agentLink{cluster: fmt.Sprint("many-", i), agentID: "agent"}}, &told}
			agent, _, err := s.registry.join(session, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.registry.leave(agent, session)
		}
		source := pkitest.NewReloader(t, hub.hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}, hub.hubCA)
		clients := pool.New(pool.Config{Dial: s.dialsAs(source)})
		defer clients.Close()
		for range connections {
			if _, err := clients.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"}); err != nil {
				t.Fatal(err)
			}
		}
		const timeout = 10 * time.Second
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			if got := told.Load(); got != agents {
				t.Errorf("%d of %d agents were told within a second, want all", got, agents)
			}
		}()
		s.drain(t.Context(), timeout, s.ports)
		if elapsed, most := time.Since(began), s.options.MinDrainDuration+timeout+time.Second; elapsed > most {
			t.Errorf("the drain took %s, want %s at most", elapsed, most)
		}
		if stats := s.clientCarriers.Stats(); stats.InUse+stats.Idle != 0 {
			t.Errorf("%+v carriers of clients are left, want none", stats)
		}
	})
}

// TestDrainWaitsForLateClients has clients that a Service goes on leading to a server
// which ends. Each finds it, as long as they come.
func TestDrainWaitsForLateClients(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hub := newMemHub(t, dir)
		s, stop := hub.start("server-0")
		defer stop()
		source := pkitest.NewReloader(t, hub.hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}, hub.hubCA)
		dial := s.dialsAs(source)
		began := time.Now()
		drained := make(chan time.Duration, 1)
		go func() {
			s.drain(t.Context(), time.Minute, s.ports)
			drained <- time.Since(began)
		}()
		quiet := s.options.MinDrainDuration
		for range 2 {
			time.Sleep(quiet * 4 / 5)
			c, err := dial(t.Context())
			if err != nil {
				t.Errorf("a client that came %s after SIGTERM: %v", time.Since(began), err)
				continue
			}
			_ = c.Close()
		}
		if took, want := (<-drained).Round(time.Second), (quiet * 13 / 5).Round(time.Second); took != want {
			t.Errorf("the drain took %s, want %s: until nobody came for %s", took, want, quiet)
		}
	})
}

// dialsAs dials carriers to the clients' port with the certificate of source.
func (s *memServer) dialsAs(source *pki.Reloader) func(context.Context) (*carrier.Carrier, error) {
	return func(ctx context.Context) (*carrier.Carrier, error) {
		config := source.ClientConfig("127.0.0.1")
		config.NextProtos = []string{carrier.ALPN}
		return carrier.Dialed(ctx, tls.Client(s.clients.dial(nil), config), carrier.Hello{}, carrier.Config{})
	}
}

// toldControl counts who was told that the server drains.
type toldControl struct {
	fakeControl
	told *atomic.Int32
}

func (c *toldControl) tell(what carrier.ControlKind, _ int) bool {
	if what == agentapi.Draining {
		c.told.Add(1)
	}
	return true
}
