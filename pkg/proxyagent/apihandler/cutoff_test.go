package apihandler

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// TestServiceConnectionIsCutOff joins a client with a tcp Service, and has one of
// them die: the other must not read a clean end.
func TestServiceConnectionIsCutOff(t *testing.T) {
	for _, victim := range []string{"Service", "client"} {
		t.Run(victim, func(t *testing.T) {
			service, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer service.Close()
			c := &cluster{names: map[string][]string{"db.default.svc": {"10.96.0.10"}}, backend: service.Addr().String()}
			list := agentapi.ExposedServices{{Namespace: "default", Service: "db", Protocol: "tcp"}}
			proxy := Services{Exposed: func() agentapi.ExposedServices { return list }, Resolver: c, Roots: pki.NewReloader(pki.Files{})}.handler()
			proxy.dialer.connect = c.connect
			front := httptest.NewUnstartedServer(proxy)
			front.Listener = connect.Listener{Listener: front.Listener}
			front.StartTLS()
			t.Cleanup(front.Close)

			raw, err := net.Dial("tcp", front.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			config := front.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.ServerName, config.NextProtos = "example.com", nil
			client, err := connect.Ask(t.Context(), tls.Client(connect.BelowTLS(raw), config), "db:5432", wants("tcp", "default", "db", "5432"))
			if err != nil {
				t.Fatal(err)
			}
			target, err := service.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			for _, way := range [][2]net.Conn{{client, target}, {target, client}} {
				if _, err := io.WriteString(way[0], "half"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way[1], make([]byte, 4)); err != nil {
					t.Fatal(err)
				}
			}
			left := net.Conn(client)
			if victim == "Service" {
				_ = target.(*net.TCPConn).SetLinger(0)
				target.Close()
			} else {
				raw.Close() // as the kernel does for a process that is killed
				left = target
			}
			if n, err := left.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the other side read %d bytes and %v", n, err)
			}
		})
	}
}

// TestUpgradeOfAServiceIsCutOff does the same after an upgrade.
func TestUpgradeOfAServiceIsCutOff(t *testing.T) {
	backends := make(chan net.Conn, 1)
	front := startServices(t, &cluster{names: map[string][]string{"web.default.svc": {"10.96.0.10"}}}, agentapi.ExposedServices{{Namespace: "default", Service: "web"}}, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n.")
		backends <- conn
	})
	for _, victim := range []string{"Service", "client"} {
		client := dialFront(t, front)
		defer client.Close()
		var head strings.Builder
		if err := wants("http", "default", "web", "80").Write(&head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"+head.String()+"\r\n"); err != nil {
			t.Fatal(err)
		}
		for answer, one := "", make([]byte, 1); !strings.HasSuffix(answer, "\r\n\r\n."); answer += string(one) {
			if _, err := io.ReadFull(client, one); err != nil {
				t.Fatal(err)
			}
		}
		backend := <-backends
		defer backend.Close()
		dies, left := backend, client
		if victim == "client" {
			dies, left = client, backend
		}
		_ = dies.(*net.TCPConn).SetLinger(0)
		dies.Close()
		if n, err := left.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: the other side read %d bytes and %v", victim, n, err)
		}
	}
}
