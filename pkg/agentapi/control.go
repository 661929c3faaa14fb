package agentapi

import (
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// serverHeader with a proxy server's ID is a feature in the HELLO of a control session that
// is meant for that server only. Another one refuses it with carrier.NoAgent.
const serverHeader = "cluster-proxy-server"

// ServerFeature returns the feature that says so.
func ServerFeature(serverID string) string { return serverHeader + "=" + serverID }

// MeantFor reports whether a control session with these features may be with a server.
func MeantFor(features []string, serverID string) bool {
	wanted, only := featureOf(features, serverHeader)
	return !only || wanted == serverID
}

// The kinds of messages on a control session. 67 and 68 stay reserved.
const (
	// AgentLeaves is an agent's: new dials should go to other agents, or by other servers.
	AgentLeaves = carrier.ControlKind(6)
	// MoreCarriers asks an agent for the given number of carriers.
	MoreCarriers = carrier.ControlKind(64)
	// Draining says that the server is about to stop: the agent should have a session with
	// another one instead. The number is how many seconds the server waits for that. An
	// agent that has another server answers with AgentLeaves.
	Draining = carrier.ControlKind(65)
	// ServerCount says how many proxy servers there are now. The same number again
	// means that a missing one has come.
	ServerCount = carrier.ControlKind(66)
)

// AwaitSession is how long an agent and a server stay known to each other without a control
// session, if the last one had become a carrier and has ended: the next one is being dialed
// since then. It needs the time of a handshake, or of a few behind a load balancer.
const AwaitSession = 5 * time.Second

// ControlMessage makes a message with a number.
func ControlMessage(kind carrier.ControlKind, number int) carrier.Control {
	return carrier.Control{Kind: kind, Number: uint64(max(number, 0))}
}

// ProcessHeader names a feature in the HELLO of an agent's carriers: a secret that each agent process makes when it starts.
// It tells a proxy server which connections are of one process: when one of them shows
// a renewed certificate, it counts for all of them. A name would not do, because a
// thief of the old certificate may know it.
const ProcessHeader = "cluster-proxy-process"

// ProcessFeature returns the feature that holds a process's secret.
func ProcessFeature(secret string) string { return ProcessHeader + "=" + secret }

// ProcessOf returns the secret that features hold; empty if there is none.
func ProcessOf(features []string) string {
	secret, _ := featureOf(features, ProcessHeader)
	return secret
}

// featureOf returns what a feature of the form name=value says, and whether there is one.
func featureOf(features []string, name string) (value string, found bool) {
	for _, feature := range features {
		if value, found = strings.CutPrefix(feature, name+"="); found {
			return value, true
		}
	}
	return "", false
}
