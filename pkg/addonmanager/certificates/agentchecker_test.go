package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// A proof is remembered, by test; whoever did not answer is missing.
func TestCheckerRemembersByCheck(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	names := []string{"b", "a", "c"}
	p := &AgentChecker{
		// Nobody listens on this port, so nobody answers.
		ProxyServer: "127.0.0.1:1",
		Clusters:    func(context.Context) ([]string, error) { return names, nil },
	}
	check := Check{ID: "one", Tunnel: ca, Servers: ca.CertPEM(), Client: ca, Agents: ca.CertPEM()}
	p.note("one", "c", start)
	missing, last, err := p.Missing(t.Context(), check)
	if err != nil || !slices.Equal(missing, []string{"a", "b"}) || !last.Equal(start) {
		t.Errorf("missing %v, last %v, %v; want [a b], %v and no error", missing, last, err, start)
	}
	check.ID = "two"
	if missing, _, err := p.Missing(t.Context(), check); err != nil || !slices.Equal(missing, []string{"a", "b", "c"}) {
		t.Errorf("a proof of another test counts: %v missing, %v", missing, err)
	}
	// A cluster that is removed is not waited for.
	names = []string{"c"}
	check.ID = "one"
	if missing, _, err := p.Missing(t.Context(), check); err != nil || len(missing) > 0 {
		t.Errorf("missing %v, %v; want none", missing, err)
	}
}

func TestCheckerFailsClosed(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	check := Check{ID: "one", Tunnel: ca, Servers: ca.CertPEM(), Client: ca, Agents: ca.CertPEM()}
	for name, p := range map[string]*AgentChecker{
		"clusters cannot be listed": {ProxyServer: "127.0.0.1:1", Clusters: func(context.Context) ([]string, error) { return nil, context.DeadlineExceeded }},
		"no address":                {Clusters: func(context.Context) ([]string, error) { return []string{"a"}, nil }},
	} {
		if _, _, err := p.Missing(t.Context(), check); err == nil {
			t.Errorf("%s: no error, want one", name)
		}
	}
}

// movers are clusters behind a proxy server, of which some have moved.
type movers struct {
	names []string

	mu    sync.Mutex
	moved map[string]bool
	asked int
}

// takeAsked is how many were asked since it was called last.
func (m *movers) takeAsked() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, m.asked = m.asked, 0
	return n
}

func (m *movers) move(names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		m.moved[name] = true
	}
}

// dial is what leads to a cluster: its handler, if it has moved.
func (m *movers) dial(cluster string, handler *tls.Config) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if !m.moved[cluster] {
		return nil, errors.New("refused")
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		server := tls.Server(far, handler)
		if server.Handshake() == nil {
			_, _ = server.Write([]byte("SETTINGS"))
		}
	}()
	return near, nil
}

// Thousands of clusters move some at a time, and some are away for long. Those that are
// missing are not all asked again each time.
func TestCheckerAsksWhatMoves(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	server := func(names ...string) *tls.Config {
		t.Helper()
		leaf := pki.Leaf{CommonName: "server", DNSNames: names, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Validity: time.Hour}
		config := pkitest.NewReloader(t, ca, leaf, ca).ServerConfig(tls.RequireAndVerifyClientCert)
		config.NextProtos = []string{"h2"}
		return config
	}
	hub := tunneltest.StartTLS(t, server())
	m := &movers{moved: map[string]bool{}}
	var hosts []string
	for i := range 6 * sampleSize {
		m.names = append(m.names, fmt.Sprintf("cluster%03d", i))
		hosts = append(hosts, identity.HandlerHost(m.names[i]))
	}
	handler := server(hosts...)
	for i, name := range m.names {
		hub.Handle(net.JoinHostPort(hosts[i], identity.HandlerPort), func(context.Context) (net.Conn, error) { return m.dial(name, handler) })
	}
	checker := &AgentChecker{ProxyServer: hub.Address(), Clusters: func(context.Context) ([]string, error) { return m.names, nil }}
	check := Check{ID: "one", Tunnel: ca, Servers: ca.CertPEM(), Client: ca, Agents: ca.CertPEM()}
	missing := func() []string {
		t.Helper()
		missing, _, err := checker.Missing(t.Context(), check)
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}
	if got := missing(); !slices.Equal(got, m.names) {
		t.Errorf("%d clusters are missing while none has moved, want all %d", len(got), len(m.names))
	}
	// On a machine that is very busy a question may end before it comes to the cluster.
	if n := m.takeAsked(); n == 0 || n > sampleSize {
		t.Errorf("%d clusters were asked while none had moved, want a sample of %d", n, sampleSize)
	}
	// As they move, those that have not are not asked all the time.
	moved := len(m.names) / 20
	m.move(m.names[:moved]...)
	missing()
	if n := m.takeAsked(); n > 3*sampleSize {
		t.Errorf("%d clusters were asked of which one in twenty had moved, want a sample of %d or some more by chance", n, sampleSize)
	}
	// Most of them have moved: one look finds more than a sample. The last few are found by some more.
	away := m.names[moved : moved+20]
	m.move(m.names[moved+20:]...)
	got := missing()
	if n := m.takeAsked(); n <= 2*sampleSize {
		t.Errorf("%d clusters were asked of which most had moved, want more", n)
	}
	for len(got) > len(away) {
		got = missing()
	}
	if !slices.Equal(got, away) {
		t.Errorf("missing %v, want %v", got, away)
	}
	// All of few are asked, so that the one that has moved is found whatever the others do.
	m.move(away[0])
	for len(got) == len(away) {
		got = missing()
	}
	if !slices.Equal(got, away[1:]) {
		t.Errorf("missing %v, want %v", got, away[1:])
	}
}
