package agentapi

import (
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

func TestRefusalCode(t *testing.T) {
	for message, want := range map[string]carrier.Code{
		"No agent available": carrier.NoAgent,
		`dialing tcp "cluster1:443" is denied: not in the destination policy`: carrier.Denied,
		"dial tcp 10.0.0.1:443: connect: connection refused":                  carrier.Refused,
		"dial tcp 10.0.0.1:443: i/o timeout":                                  carrier.TimedOut,
		"dial tcp 10.0.0.1:443: connect: connection timed out":                carrier.TimedOut,
		"dial timeout, backstop":                                              carrier.TimedOut,
		"dial tcp 10.0.0.1:443: connect: no route to host":                    carrier.Unreachable,
		"": carrier.Unreachable,
	} {
		if got := RefusalCode(message); got != want {
			t.Errorf("RefusalCode(%q) = %s, want %s", message, got, want)
		}
	}
}
