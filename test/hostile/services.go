package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// testServices asks a real agent's handler, as a proxy API in the attacker's
// hands would, for Services that are not listed or are not what they seem.
func (s *Suite) testServices(t *testing.T) {
	own := lab.OwnAddress()
	if !own.IsValid() {
		t.Fatal("this machine has no address but loopback, which agents never dial")
	}
	loopback := &trap{}
	port := loopback.listen(t, netip.MustParseAddr("127.0.0.1"))
	allowed := &trap{}
	allowedPort := allowed.listen(t, own)
	dns := ServeDNS(t, deceive(own))
	dir := t.TempDir()
	list := ""
	for _, name := range []string{"web", "metadata", "linklocal", "loopback", "changing"} {
		list += "- {namespace: default, service: " + name + ", protocol: http}\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "services"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	handler := local(t)
	agent := s.agent(t, s.attacker(), s.agentCertificate(t, s.attacker()), fmt.Sprint(s.Lab.AgentPort),
		"--handler-port="+handler, "--exposed-services="+dir, "--dns-server="+dns)
	ask := func(secret string, header http.Header) (int, string) {
		config := clientTLS(t, s.pairOf(t, secret), s.secret(t, "cluster-proxy-agent-ca").Data["ca.crt"], identity.HandlerHost(s.attacker()))
		return askHandler(t, &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, handler, header)
	}
	service := func(proto, name, port string) http.Header {
		return http.Header{"Cluster-Proxy-Proto": {proto}, "Cluster-Proxy-Namespace": {"default"}, "Cluster-Proxy-Service": {name}, "Cluster-Proxy-Port": {port}}
	}
	const api = "cluster-proxy-api-client"
	agent.Await(t, "the listed Service to answer", func() error {
		if code, body := ask(api, service("http", "web", allowedPort)); code != 200 || body != "hello" {
			return fmt.Errorf("%d %q", code, body)
		}
		return nil
	})
	for _, test := range []struct {
		name, reason string
		header       http.Header
		code         int
	}{
		{"not listed", "not-exposed", service("http", "unlisted", port), 403},
		{"other protocol", "not-exposed", service("https", "web", allowedPort), 403},
		{"metadata", "link-local", service("http", "metadata", "80"), 403},
		{"link-local", "link-local", service("http", "linklocal", "80"), 403},
		{"loopback", "loopback", service("http", "loopback", port), 403},
		{"address in the name", "malformed", service("http", "127.0.0.1", port), 400},
		{"host in the name", "malformed", service("http", "metadata.google.internal/?", port), 400},
		{"unix", "malformed", service("unix", "web", port), 400},
		{"udp", "malformed", service("udp", "web", port), 400},
		{"login that is not forwarded", "malformed", withLogin(service("http", "web", allowedPort)), 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := agent.watch(t, `cluster_proxy_agent_service_requests_rejected_total{reason="`+test.reason+`"}`)
			if code, body := ask(api, test.header); code != test.code {
				t.Errorf("%d %s, want %d", code, body, test.code)
			}
			n.check(t, 1, "request for a Service", `reason="`)
		})
	}
	t.Run("name that changes between check and dial", func(t *testing.T) {
		n := agent.watch(t, `cluster_proxy_agent_service_requests_rejected_total{reason="loopback"}`)
		for range 10 {
			if code, body := ask(api, service("http", "changing", port)); code != http.StatusForbidden && code != http.StatusBadGateway {
				t.Errorf("answered %d %s, want 403 or 502", code, body)
			}
		}
		n.check(t, 1, "Denied a request for a Service", `reason="loopback"`, "changing.default.svc")
	})
	t.Run("client that is not the proxy API", func(t *testing.T) {
		n := agent.watch(t, "cluster_proxy_agent_requests_rejected_total")
		if code, body := ask("proxy-client", service("http", "web", allowedPort)); code != http.StatusForbidden {
			t.Errorf("answered %d %s, want 403", code, body)
		}
		n.check(t, 1, "not the proxy API")
	})
	if loopback.count.Load() > 0 {
		t.Errorf("the agent has dialed a loopback address %d times", loopback.count.Load())
	}
}

// withLogin adds what a Service could take for a user's login.
func withLogin(header http.Header) http.Header {
	header.Set("Cluster-Proxy-Authorization", "Bearer stolen")
	return header
}

// deceive answers for Services: some names lead where no Service is, and one
// leads to another place each time that it is asked for.
func deceive(own netip.Addr) func(name string) netip.Addr {
	var asked atomic.Int64
	return func(name string) netip.Addr {
		switch name {
		case "web.default.svc":
			return own
		case "metadata.default.svc":
			return netip.MustParseAddr("169.254.169.254")
		case "linklocal.default.svc":
			return netip.MustParseAddr("169.254.1.1")
		case "loopback.default.svc", "unlisted.default.svc":
			return netip.MustParseAddr("127.0.0.1")
		case "changing.default.svc":
			if asked.Add(1)%2 == 1 {
				return own
			}
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.Addr{}
	}
}

func askHandler(t *testing.T, client *http.Client, port string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// trap counts who connects.
type trap struct{ count atomic.Int64 }

func (c *trap) listen(t *testing.T, address netip.Addr) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				c.count.Add(1)
			}
		}}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	_, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// ServeDNS answers questions for IPv4 addresses over UDP.
func ServeDNS(t *testing.T, answer func(name string) netip.Addr) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
	t.Cleanup(func() { stop(); _ = conn.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
			if q.Type == dnsmessage.TypeA {
				if ip := answer(strings.TrimSuffix(q.Name.String(), ".")); ip.IsValid() {
					m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}, Body: &dnsmessage.AResource{A: ip.As4()}}}
				} else {
					m.RCode = dnsmessage.RCodeNameError
				}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}
