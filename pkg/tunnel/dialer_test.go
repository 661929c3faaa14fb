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
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func TestDialErrors(t *testing.T) {
	hub := tunneltest.Start(t)
	for host, code := range map[string]tunnel.Code{
		"denied": tunnel.Denied, "unreachable": tunnel.Unreachable, "timeout": tunnel.TimedOut, "overloaded": tunnel.Overloaded,
		"draining": tunnel.Draining, "nocluster": tunnel.NoSuchCluster,
	} {
		hub.Handle(host+":443", func(context.Context) (net.Conn, error) { return nil, &tunnel.Error{Code: code, Message: "because"} })
	}
	hub.Handle("fails:443", func(context.Context) (net.Conn, error) { return nil, errors.New("no route to host") })
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
		{"tcp", "unreachable:443", tunnel.Unreachable},
		{"tcp", "fails:443", tunnel.Unreachable},
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
		if !errors.As(err, &timeout) || !timeout.Timeout() {
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
	near, _ := pair(t, hub, dialer)
	near.Close()
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
