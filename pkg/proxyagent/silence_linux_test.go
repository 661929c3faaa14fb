package proxyagent

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
)

// TestTargetThatVanishesIsNoticed has a target that is gone without a word, while the client
// sends and while it does not.
func TestTargetThatVanishesIsNoticed(t *testing.T) {
	const impatient = time.Second // as long as the kernel lets probes be apart
	for name, sends := range map[string]bool{"the client sends": true, "the client is silent": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			metrics := newAgentMetrics(prometheus.NewRegistry())
			d := &carrierDialer{
				tcp: dial.TCP{KeepAlive: impatient, UserTimeout: impatient}, targetTimeout: 10 * time.Second,
				decide: func(string, string) (policy.Target, error) {
					return policy.Target{Address: listener.Addr().String()}, nil
				},
				memory: memlimit.New(prometheus.NewRegistry(), "", ""), metrics: metrics,
			}
			here, there := net.Pipe()
			go func() {
				_, _ = carrier.Dialed(context.Background(), here, carrier.Hello{Session: "agent"}, *d.carrierConfig())
			}()
			server, _, err := carrier.Accepted(t.Context(), there, carrier.Config{Role: carrier.Opener})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			conn, err := server.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "x:1"})
			if err != nil {
				t.Fatal(err)
			}
			target, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			carriertest.Swallow(t, target)
			if sends {
				if _, err := io.WriteString(conn, "is anybody there?"); err != nil {
					t.Fatal(err)
				}
			}
			// The kernel's own verdict takes a quarter of an hour.
			_ = conn.SetReadDeadline(time.Now().Add(30 * impatient))
			if _, err := conn.Read(make([]byte, 1)); carrier.CodeOf(err) != carrier.CutOff {
				t.Errorf("reading: %v, want %s", err, carrier.CutOff)
			}
		})
	}
}
