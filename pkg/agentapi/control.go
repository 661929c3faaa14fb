package agentapi

import (
	"strings"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// CarriersHeader in the metadata of a stream says that the side which sends it speaks
// carriers.
const CarriersHeader = "cluster-proxy-carriers"

// ServerHeader with a proxy server's ID is a feature in the HELLO of a control session that
// is meant for that server only. Another one refuses it with carrier.NoAgent.
const ServerHeader = "cluster-proxy-server"

// ServerFeature returns the feature that says so.
func ServerFeature(serverID string) string { return ServerHeader + "=" + serverID }

// MeantFor reports whether a control session with these features may be with a server.
func MeantFor(features []string, serverID string) bool {
	wanted, only := featureOf(features, ServerHeader)
	return !only || wanted == serverID
}

// The types of packets, all from a proxy server to an agent. On a control carrier they
// are the kinds of messages. 67 and 68 stay reserved.
const (
	// MoreCarriers asks for the given number of carriers.
	MoreCarriers = client.PacketType(64)
	// Draining says that the server is about to stop: the agent should have a stream to
	// another one instead. The number is how many seconds the server waits for that. An
	// agent that has another server answers with konnectivity's DRAIN.
	Draining = client.PacketType(65)
	// ServerCount says how many proxy servers there are now. The same number again
	// means that a missing one has come.
	ServerCount = client.PacketType(66)
)

// ControlPacket makes one of these packets.
func ControlPacket(kind client.PacketType, number int) *client.Packet {
	return &client.Packet{Type: kind, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: int64(number)}}}
}

// ControlNumber is that of a packet; 0 if it has none.
func ControlNumber(packet *client.Packet) int { return int(packet.GetData().GetConnectID()) }

// AgentLeaves is the message on a control carrier that konnectivity's DRAIN is on a stream:
// new dials should go to other agents, or by other servers.
const AgentLeaves = client.PacketType_DRAIN

// ControlMessage makes the message of a control carrier that is a packet on a stream.
func ControlMessage(kind client.PacketType, number int) carrier.Control {
	return carrier.Control{Kind: carrier.ControlKind(kind), Number: uint64(max(number, 0))}
}

// HasPayload reports whether a packet has the payload that its type says.
// Konnectivity's servers and agents dereference it, and a nil one ends the process.
func HasPayload(packet *client.Packet) bool {
	switch packet.Type {
	case client.PacketType_DIAL_REQ:
		return packet.GetDialRequest() != nil
	case client.PacketType_DIAL_RSP:
		return packet.GetDialResponse() != nil
	case client.PacketType_CLOSE_REQ:
		return packet.GetCloseRequest() != nil
	case client.PacketType_CLOSE_RSP:
		return packet.GetCloseResponse() != nil
	case client.PacketType_DATA:
		return packet.GetData() != nil
	case client.PacketType_DIAL_CLS:
		return packet.GetCloseDial() != nil
	}
	return true
}

// ProcessHeader in the metadata of an agent's stream, and the feature with that name in
// the HELLO of its carriers, is a secret that each agent process makes when it starts.
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
