package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	konnectivityagent "sigs.k8s.io/apiserver-network-proxy/pkg/agent"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
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

type one struct{}

func (one) Count() int { return 1 }

// runStockAgent runs konnectivity's own agent for a cluster called
// "localhost", so that what it dials can be resolved.
func runStockAgent(t *testing.T, h *testHub) {
	t.Helper()
	stop := make(chan struct{})
	config := konnectivityagent.ClientSetConfig{
		Address: h.Addrs().Agent.String(), AgentID: "stock",
		AgentIdentifiers: identity.Identifiers(identity.Hosts("localhost", identity.DefaultAgentNamespace)),
		SyncInterval:     20 * time.Millisecond, ProbeInterval: 20 * time.Millisecond, SyncIntervalCap: 20 * time.Millisecond,
		DialOptions:    []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(h.tlsFor(t, h.agentCA, identity.AgentCommonName("localhost"))))},
		XfrChannelSize: 150,
	}
	clients := config.NewAgentClientSet(nil, stop)
	clients.SetServerCounter(one{})
	clients.Serve()
	t.Cleanup(func() {
		close(stop)
		eventually(t, "the agent has gone", func() bool { return clients.ClientsCount() == 0 })
	})
	eventually(t, "the agent is registered", func() bool { ready, _ := h.konnectivity.Readiness.Ready(); return ready })
}

func TestStockAgentAndClients(t *testing.T) {
	h := startHub(t)
	runStockAgent(t, h)
	target := fmt.Sprintf("localhost:%d", echoServer(t))

	conn, err := h.dial(t, h.clientTLS(t), target)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "single", "single")
	if err := conn.Close(); err != nil {
		t.Error(err)
	}

	tunnel, err := konnectivity.CreateGRPCTunnel(t.Context(), h.clientAddr, grpc.WithTransportCredentials(credentials.NewTLS(h.clientTLS(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	for i := range 3 {
		conn, err := tunnel.DialContext(t.Context(), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, conn, fmt.Sprint("reusable", i), fmt.Sprint("reusable", i))
		_ = conn.Close()
	}
	eventually(t, "the agent carries nothing", func() bool {
		manager := h.konnectivity.BackendManagers[0].(*balancedManager)
		manager.mu.RLock()
		defer manager.mu.RUnlock()
		for _, group := range manager.groups {
			return streamOf(group[0]).load() == 0
		}
		return false
	})
}

func TestHTTPConnect(t *testing.T) {
	h := startHub(t, func(o *Options) { o.Mode = server.ModeHTTPConnect })
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

	unauthenticated, err := tls.Dial("tcp", h.clientAddr, h.tlsFor(t, h.hubCA, "localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer unauthenticated.Close()
	_, err = connect.Ask(t.Context(), unauthenticated, "cluster1:443", nil)
	if refusal := new(connect.Refusal); !errors.As(err, &refusal) || refusal.Code != http.StatusForbidden {
		t.Errorf("without a role: %v, want 403", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // left over by a crash
		t.Fatal(err)
	}
	h := startHub(t, func(o *Options) {
		o.UDSName, o.ServerCert, o.ServerKey, o.ServerCACert = path, "", "", ""
	})
	h.mustConnect(t, agentSpec{cluster: "cluster1"})
	tunnel, err := konnectivity.CreateSingleUseGrpcTunnel(t.Context(), "unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tunnel.DialContext(t.Context(), "tcp", "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "x", "cluster1:x")
	_ = conn.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o770 {
		t.Errorf("socket: %v, %v; want mode 0770", info.Mode(), err)
	}
}

func TestReadiness(t *testing.T) {
	h := startHub(t)
	if code, body := h.scrape(t, "/readyz"); code != 200 {
		t.Errorf("certificate mode without agents: %d %q, want 200", code, body)
	}
	declared := startHub(t, func(o *Options) { o.AgentIdentity = IdentityDeclared })
	for _, path := range []string{"/ready", "/readyz"} {
		if code, body := declared.scrape(t, path); code != 500 || !strings.Contains(body, "[-]agents failed: no connection to any proxy agent") {
			t.Errorf("declared mode, %s: %d %q, want 500 for the agents", path, code, body)
		}
	}
	if code, body := declared.scrape(t, "/healthz"); code != 200 || body != "ok" {
		t.Errorf("declared mode, /healthz: %d %q, want 200 and ok", code, body)
	}
	if _, err := declared.connectAgent(t, agentSpec{cluster: "cluster1"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { code, _ := declared.scrape(t, "/readyz"); return code == 200 })
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
	for _, mode := range []string{server.ModeGRPC, server.ModeHTTPConnect} {
		t.Run(mode, func(t *testing.T) {
			h := startHub(t, func(o *Options) { o.Mode, o.GracefulShutdownTimeout = mode, testTimeout })
			h.mustConnect(t, agentSpec{cluster: "cluster1"})
			var conn io.ReadWriteCloser
			if mode == server.ModeGRPC {
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
		mode string
		dial func(*testing.T, *testHub) (io.ReadWriter, error)
	}{
		"carrier": {server.ModeGRPC, func(t *testing.T, h *testHub) (io.ReadWriter, error) {
			config := h.clientTLS(t)
			dialer := &tunnel.Dialer{ProxyServer: h.clientAddr, TLS: func() *tls.Config { return config.Clone() }}
			t.Cleanup(func() { _ = dialer.Close() })
			return dialer.DialContext(t.Context(), "tcp", "cluster1:443")
		}},
		"HTTP CONNECT": {server.ModeHTTPConnect, func(t *testing.T, h *testHub) (io.ReadWriter, error) {
			raw, err := net.Dial("tcp", h.clientAddr)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = raw.Close() })
			return connect.Ask(t.Context(), tls.Client(connect.BelowTLS(raw), h.clientTLS(t)), "cluster1:443", nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, func(o *Options) { o.Mode, o.GracefulShutdownTimeout = tc.mode, 50*time.Millisecond })
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
