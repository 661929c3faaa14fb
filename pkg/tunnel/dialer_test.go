package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func TestDialErrors(t *testing.T) {
	hub := tunneltest.Start(t)
	for address, message := range map[string]string{
		"denied:443":     `destination "10.0.0.1:22" denied by policy`,
		"refused:443":    "dial tcp 10.0.0.1:443: connect: connection refused",
		"timeout:443":    "dial tcp 10.0.0.1:443: i/o timeout",
		"noroute:443":    "dial tcp 10.0.0.1:443: connect: no route to host",
		"unresolved:443": "dial tcp: lookup x: no such host",
		"overloaded:443": "agent overloaded",
		"draining:443":   "proxy server draining",
		"nocluster:443":  "no such cluster",
	} {
		hub.Handle(address, func(context.Context) (net.Conn, error) { return nil, errors.New(message) })
	}
	hub.Handle("hangs:443", func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	dialer := hub.Dialer()
	for _, tc := range []struct {
		network, address string
		want             tunnel.Code
	}{
		{"tcp", "nobody:443", tunnel.NoAgent},
		{"tcp", "denied:443", tunnel.Denied},
		{"tcp", "refused:443", tunnel.Unreachable},
		{"tcp", "noroute:443", tunnel.Unreachable},
		{"tcp", "unresolved:443", tunnel.Unreachable},
		{"tcp", "timeout:443", tunnel.TimedOut},
		{"tcp", "overloaded:443", tunnel.Overloaded},
		{"tcp", "draining:443", tunnel.Draining},
		{"tcp", "nocluster:443", tunnel.NoSuchCluster},
		{"tcp", "no-port", tunnel.Invalid},
		{"tcp", ":443", tunnel.Invalid},
		{"tcp", "cluster1:https", tunnel.Invalid},
		{"udp", "cluster1:443", tunnel.Invalid},
	} {
		t.Run(tc.network+" "+tc.address, func(t *testing.T) {
			_, err := dialer.DialContext(t.Context(), tc.network, tc.address)
			var typed *tunnel.Error
			if !errors.As(fmt.Errorf("wrapped: %w", err), &typed) || typed.Code != tc.want || typed.Address != tc.address {
				t.Errorf("got %#v, want code %s", err, tc.want)
			}
		})
	}
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := dialer.DialContext(ctx, "tcp", "hangs:443")
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a time-out", err)
		}
	})
	t.Run("dial timeout", func(t *testing.T) {
		impatient := &tunnel.Dialer{ProxyServer: hub.Address(), DialTimeout: 50 * time.Millisecond}
		defer impatient.Close()
		if _, err := impatient.DialContext(t.Context(), "tcp", "hangs:443"); tunnel.CodeOf(err) != tunnel.TimedOut {
			t.Errorf("got %v, want code TimedOut", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := dialer.DialContext(ctx, "tcp", "hangs:443")
		if !errors.Is(err, context.Canceled) || tunnel.CodeOf(err) != tunnel.Canceled {
			t.Errorf("got %v, want canceled", err)
		}
	})
}

func TestDialerSurvivesTheProxyServer(t *testing.T) {
	hub := tunneltest.Start(t)
	dialer := hub.Dialer()
	pair(t, hub, dialer)
	hub.Stop()
	if _, err := dialer.DialContext(t.Context(), "tcp", target); tunnel.CodeOf(err) != tunnel.NoProxyServer && tunnel.CodeOf(err) != tunnel.Lost {
		t.Errorf("dialing without a proxy server: %v, want code NoProxyServer", err)
	}
	hub.Resume()
	listener := httptest.NewServer(http.NotFoundHandler())
	defer listener.Close()
	hub.Forward(target, listener.Listener.Addr().String())
	wait.Poll{Every: 10 * time.Millisecond, For: 10 * time.Second}.Success(t, "a new connection", func() error {
		conn, err := dialer.DialContext(t.Context(), "tcp", target)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func TestClosedDialer(t *testing.T) {
	dialer := &tunnel.Dialer{ProxyServer: "127.0.0.1:1"}
	if err := dialer.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dialer.DialContext(t.Context(), "tcp", target); tunnel.CodeOf(err) != tunnel.Closed || !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want code Closed", err)
	}
}

func TestRESTConfig(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.TLS.ServerName + " " + r.Host))
	}))
	defer server.Close()
	hub := tunneltest.Start(t)
	hub.Forward(target, server.Listener.Addr().String())
	cfg := hub.Dialer().RESTConfig("cluster1")
	if cfg.TLSClientConfig.ServerName != "kubernetes.default.svc" {
		t.Errorf("ServerName %q, want kubernetes.default.svc", cfg.TLSClientConfig.ServerName)
	}
	cfg.TLSClientConfig.ServerName = "example.com" // what httptest's certificate is for
	cfg.TLSClientConfig.CAData = pemOf(server)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(cfg.Host + "/version")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || hub.Dials(target) != 1 {
		t.Errorf("status %d, %d dials, want 200 and one dial", resp.StatusCode, hub.Dials(target))
	}
}

// TestHubServesKonnectivityClient keeps tunneltest honest: the unmodified
// client must work with it.
func TestHubServesKonnectivityClient(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	hub := tunneltest.Start(t)
	hub.Forward(target, server.Listener.Addr().String())
	single, err := konnectivity.CreateSingleUseGrpcTunnelWithContext(t.Context(), t.Context(), hub.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: single.DialContext}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://" + target)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	transport.CloseIdleConnections()
	<-single.Done()
}
