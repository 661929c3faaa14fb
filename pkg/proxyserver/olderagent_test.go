package proxyserver

import (
	"errors"
	"strings"
	"testing"
)

// TestOlderAgentIsNamed wants the log to say what an agent of OCM's own cluster-proxy
// looks like, at the port of agents and for that failure alone.
func TestOlderAgentIsNamed(t *testing.T) {
	none := errors.New("tls: client didn't provide a certificate")
	for _, tc := range []struct {
		name   string
		agents bool
		err    error
		want   bool
	}{
		{"an agent", true, none, true},
		{"a client", false, none, false},
		{"an agent with an expired certificate", true, errors.New("tls: expired certificate"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &muxListener{agents: tc.agents}
			if got := m.explain(tc.err); strings.Contains(got.Error(), "an agent of an older release") != tc.want || !errors.Is(got, tc.err) {
				t.Errorf("explained as %q, names it: want %v", got, tc.want)
			}
		})
	}
}
