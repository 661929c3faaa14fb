package certificates

import (
	"context"
	"slices"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// A proof is remembered, by test; whoever did not answer is missing.
func TestProbeRemembersByTest(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	names := []string{"b", "a", "c"}
	p := &Probe{
		// Nobody listens on this port, so nobody answers.
		ProxyServer: "127.0.0.1:1",
		Clusters:    func(context.Context) ([]string, error) { return names, nil },
	}
	test := Test{ID: "one", Tunnel: ca, Servers: ca.CertPEM(), Client: ca, Agents: ca.CertPEM()}
	p.note("one", "c", start)
	missing, last, err := p.Missing(t.Context(), test)
	if err != nil || !slices.Equal(missing, []string{"a", "b"}) || !last.Equal(start) {
		t.Errorf("missing %v, last %v, %v", missing, last, err)
	}
	test.ID = "two"
	if missing, _, err := p.Missing(t.Context(), test); err != nil || !slices.Equal(missing, []string{"a", "b", "c"}) {
		t.Errorf("a proof of another test counts: %v missing, %v", missing, err)
	}
	// A cluster that is removed is not waited for.
	names = []string{"c"}
	test.ID = "one"
	if missing, _, err := p.Missing(t.Context(), test); err != nil || len(missing) > 0 {
		t.Errorf("missing %v, %v; want none", missing, err)
	}
}

func TestProbeFailsClosed(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	test := Test{ID: "one", Tunnel: ca, Servers: ca.CertPEM(), Client: ca, Agents: ca.CertPEM()}
	for name, p := range map[string]*Probe{
		"clusters cannot be listed": {ProxyServer: "127.0.0.1:1", Clusters: func(context.Context) ([]string, error) { return nil, context.DeadlineExceeded }},
		"no address":                {Clusters: func(context.Context) ([]string, error) { return []string{"a"}, nil }},
	} {
		if _, _, err := p.Missing(t.Context(), test); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
