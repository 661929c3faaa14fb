package agentapi

import (
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// refusals maps parts of the messages in which konnectivity's server and agent,
// and our own, say why a dial failed. The first match counts: an agent repeats the
// address in its message, so the most specific come first.
var refusals = []struct {
	part string
	code carrier.Code
}{
	{"no agent available", carrier.NoAgent}, // konnectivity, pkg/server/backend_manager.go
	{"no such cluster", carrier.NoSuchCluster},
	{"denied", carrier.Denied},
	{"not allowed", carrier.Denied},
	{"overloaded", carrier.Overloaded},
	{"draining", carrier.Draining},
	{"i/o timeout", carrier.TimedOut},  // package net
	{"dial timeout", carrier.TimedOut}, // konnectivity-client, pkg/client/client.go
	{"timed out", carrier.TimedOut},
	{"deadline exceeded", carrier.TimedOut},
	{"connection refused", carrier.Refused},
}

// RefusalCode returns the code of a dial that failed in konnectivity's protocol
// with this message. The protocol has no codes of its own.
func RefusalCode(message string) carrier.Code {
	message = strings.ToLower(message)
	for _, r := range refusals {
		if strings.Contains(message, r.part) {
			return r.code
		}
	}
	return carrier.Unreachable
}
