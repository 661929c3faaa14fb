package certificates

import (
	"context"
	"slices"
	"testing"

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
