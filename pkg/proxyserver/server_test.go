package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// echoServer is a TCP target on 127.0.0.1.
func echoServer(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestHTTPConnect(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	conn, err := tls.Dial("tcp", h.clientAddr, h.clientTLS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	target, err := connect.Ask(t.Context(), conn, "cluster1:443", nil)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, target, "hello", "cluster1:hello")

	for _, tc := range []struct {
		config  *tls.Config
		address string
		want    int
	}{
		{h.tlsFor(t, h.hubCA, "localhost"), "cluster1:443", http.StatusForbidden}, // no role
		{h.clientTLS(t), "cluster2:443", http.StatusServiceUnavailable},           // no agent
	} {
		conn, err := tls.Dial("tcp", h.clientAddr, tc.config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = connect.Ask(t.Context(), conn, tc.address, nil)
		if refusal := new(connect.Refusal); !errors.As(err, &refusal) || refusal.Code != tc.want {
			t.Errorf("%s: %v, want %d", tc.address, err, tc.want)
		}
	}
}

func TestReadiness(t *testing.T) {
	h := startHub(t)
	if code, body := h.scrape(t, "/readyz"); code != 200 {
		t.Errorf("without agents: %d %q, want 200", code, body)
	}
	instead := startHub(t, withKonnectivityAgents)
	for _, path := range []string{"/ready", "/readyz"} {
		if code, body := instead.scrape(t, path); code != 500 || !strings.Contains(body, "[-]agents failed: no connection to any proxy agent") {
			t.Errorf("in place of a konnectivity server, %s: %d %q, want 500 for the agents", path, code, body)
		}
	}
	if code, body := instead.scrape(t, "/healthz"); code != 200 || body != "ok" {
		t.Errorf("in place of a konnectivity server, /healthz: %d %q, want 200 and ok", code, body)
	}
	instead.mustConnect(t, agentSpec{cluster: "cluster1"})
	eventually(t, "ready", func() bool { code, _ := instead.scrape(t, "/readyz"); return code == 200 })
	if _, body := h.scrape(t, "/metrics"); !strings.Contains(body, "konnectivity_network_proxy_server_ready_backend_connections") {
		t.Error("konnectivity's metrics are missing")
	}
}

func TestReloadWithoutRestart(t *testing.T) {
	h := startHub(t)
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	old := h.clientTLS(t)
	conn, err := h.dial(t, old, "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	h.hubCA = pkitest.NewCA(t, "hub")
	pkitest.Issue(t, filepath.Join(h.dir, "server"), h.hubCA, servingLeaf, h.hubCA)
	if err := h.clientSource.Load(); err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "still", "cluster1:still")
	_ = conn.Close()
	fresh, err := h.dial(t, h.clientTLS(t), "cluster1:443")
	if err != nil {
		t.Fatalf("client of the new CA: %v", err)
	}
	_ = fresh.Close()
	raw, err := tls.Dial("tcp", h.clientAddr, old)
	if err == nil {
		_ = raw.Close()
		t.Error("the old CA's client trusts the new serving certificate")
	}
}

func TestDrainLetsConnectionsEnd(t *testing.T) {
	for _, mode := range []string{"gRPC", "HTTP CONNECT"} {
		t.Run(mode, func(t *testing.T) {
			h := startHub(t, func(o *Options) { o.KonnectivityAgents, o.GracefulShutdownTimeout = true, testTimeout })
			agent := h.mustConnect(t, agentSpec{cluster: "cluster1"})
			var conn io.ReadWriteCloser
			if mode == "gRPC" {
				tunnelled, err := h.dial(t, h.clientTLS(t), "cluster1:443")
				if err != nil {
					t.Fatal(err)
				}
				conn = tunnelled
			} else {
				raw, err := tls.Dial("tcp", h.clientAddr, h.clientTLS(t))
				if err != nil {
					t.Fatal(err)
				}
				if conn, err = connect.Ask(t.Context(), raw, "cluster1:443", nil); err != nil {
					t.Fatal(err)
				}
			}
			h.stop()
			eventually(t, "not ready", func() bool {
				code, body := h.scrape(t, "/readyz")
				return code == 500 && strings.Contains(body, "[-]draining")
			})
			if err := agent.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0)); err != nil {
				t.Error(err)
			}
			for name, addr := range map[string]net.Addr{"agents": h.Addrs().Agent, "clients": h.Addrs().Client} {
				eventually(t, "closed to "+name, func() bool {
					c, err := net.Dial("tcp", addr.String())
					if err == nil {
						_ = c.Close()
					}
					return err != nil
				})
			}
			exchange(t, conn, "still", "cluster1:still")
			select {
			case <-h.done:
				t.Fatal("ended with a connection open")
			default:
			}
			_ = conn.Close()
			select {
			case <-h.done:
			case <-time.After(testTimeout / 2):
				t.Fatal("did not end after the last connection")
			}
			if h.result != nil {
				t.Error(h.result)
			}
		})
	}
}

// TestDrainCutsAtTheTimeout has each kind of client that can tell the end of a
// connection from a cut. Konnectivity's own reads io.EOF in either case.
func TestDrainCutsAtTheTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		dial func(*testing.T, *testHub) (io.ReadWriter, error)
	}{
		"carrier": {func(t *testing.T, h *testHub) (io.ReadWriter, error) {
			config := h.clientTLS(t)
			dialer := &tunnel.Dialer{ProxyServer: h.clientAddr, TLS: func() *tls.Config { return config.Clone() }}
			t.Cleanup(func() { _ = dialer.Close() })
			return dialer.DialContext(t.Context(), "tcp", "cluster1:443")
		}},
		"HTTP CONNECT": {func(t *testing.T, h *testHub) (io.ReadWriter, error) {
			raw, err := net.Dial("tcp", h.clientAddr)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = raw.Close() })
			return connect.Ask(t.Context(), tls.Client(connect.BelowTLS(raw), h.clientTLS(t)), "cluster1:443", nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, func(o *Options) { o.KonnectivityAgents, o.GracefulShutdownTimeout = true, 50*time.Millisecond })
			h.mustConnect(t, agentSpec{cluster: "cluster1"})
			conn, err := tc.dial(t, h)
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, conn, "hello", "cluster1:hello")
			h.stop()
			<-h.done
			if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("read %d bytes and %v after the server ended, want another error", n, err)
			}
		})
	}
}

func TestRunNamesWhatIsMissing(t *testing.T) {
	o := NewOptions()
	o.ServerCert, o.ServerKey, o.ServerCACert = "/absent/a", "/absent/b", "/absent/c"
	o.ClusterCert, o.ClusterKey, o.ClusterCACert = "/absent/d", "/absent/e", "/absent/f"
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "/absent/") {
		t.Errorf("Run = %v, want an error that names /absent/", err)
	}
}
