package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	konnectivityagent "sigs.k8s.io/apiserver-network-proxy/pkg/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// withKonnectivityAgents has a server stand in for one of konnectivity's.
func withKonnectivityAgents(o *Options) { o.KonnectivityAgents = true }

// streamAgent speaks konnectivity's agent protocol. It accepts every dial and
// answers each packet with its name and the packet's data.
type streamAgent struct {
	name   string
	stream agent.AgentService_ConnectClient
	manual atomic.Bool         // the test answers dials
	seen   chan *client.Packet // DIAL_REQs, if it does
	gone   chan struct{}
}

func (h *testHub) connectStream(t *testing.T, spec agentSpec) (*streamAgent, error) {
	t.Helper()
	if spec.ca == nil {
		spec.ca = h.agentCA
	}
	return h.connectStreamTLS(t, spec, h.tlsFor(t, spec.ca, identity.AgentCommonName(spec.cluster)))
}

func (h *testHub) connectStreamTLS(t *testing.T, spec agentSpec, config *tls.Config) (*streamAgent, error) {
	t.Helper()
	if spec.id == "" {
		spec.id = "agent"
	}
	if spec.identifiers == "" {
		spec.identifiers = identity.Identifiers(identity.Hosts(spec.cluster, identity.DefaultAgentNamespace))
	}
	if spec.name == "" {
		spec.name = spec.cluster
	}
	conn, err := grpc.NewClient(h.Addrs().Agent.String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, spec.id, header.AgentIdentifiers, spec.identifiers)
	stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		return nil, err
	}
	if received, err := stream.Header(); err != nil || len(received.Get(header.ServerID)) == 0 {
		_, err = stream.Recv()
		return nil, err
	}
	a := &streamAgent{name: spec.name, stream: stream, seen: make(chan *client.Packet, 64), gone: make(chan struct{})}
	go a.serve()
	t.Cleanup(func() { cancel(); <-a.gone })
	return a, nil
}

// mustStream also waits until dials are routed to the agent.
func (h *testHub) mustStream(t *testing.T, spec agentSpec) *streamAgent {
	t.Helper()
	before := h.backends()
	a, err := h.connectStream(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is registered", func() bool { return h.backends() > before })
	return a
}

func (h *testHub) backends() int { return h.konnectivity.Backends() }

func (a *streamAgent) serve() {
	defer close(a.gone)
	for next := int64(1); ; {
		packet, err := a.stream.Recv()
		if err != nil {
			return
		}
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
			if a.manual.Load() {
				a.seen <- packet
			} else {
				a.accept(packet.GetDialRequest().Random, next)
				next++
			}
		case client.PacketType_DATA:
			data := packet.GetData()
			a.data(data.ConnectID, fmt.Sprintf("%s:%s", a.name, data.Data))
		case client.PacketType_CLOSE_REQ:
			_ = a.stream.Send(&client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{
				CloseResponse: &client.CloseResponse{ConnectID: packet.GetCloseRequest().ConnectID}}})
		}
	}
}

func (a *streamAgent) accept(random, connectID int64) {
	_ = a.stream.Send(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{
		DialResponse: &client.DialResponse{Random: random, ConnectID: connectID}}})
}

func (a *streamAgent) data(connectID int64, data string) {
	_ = a.stream.Send(&client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{
		Data: &client.Data{ConnectID: connectID, Data: []byte(data)}}})
}

func wantDenied(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("%s: %v, want PermissionDenied", what, err)
	}
}

// TestAgentMayOnlyDeclareItsOwnCluster has a stream's metadata go where a HELLO does, of which
// TestControlCarriersDeclareTheirOwnCluster has each way to lie.
func TestAgentMayOnlyDeclareItsOwnCluster(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	attack := func(when string) {
		_, err := h.connectStream(t, agentSpec{cluster: "cluster1", identifiers: "host=cluster1&host=cluster2"})
		wantDenied(t, when, err)
	}
	attack("before cluster2 connects:")
	h.mustStream(t, agentSpec{cluster: "cluster2"})
	attack("after cluster2 connected:")
	conn, err := h.dial(t, h.clientTLS(t), "cluster2:443")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "x", "cluster2:x")
	_ = conn.Close()
	if _, err := h.dial(t, h.clientTLS(t), "cluster1:443"); err == nil || !strings.Contains(err.Error(), "No agent available") {
		t.Errorf("dial to the refused agent's cluster = %v", err)
	}
	if _, body := h.scrape(t, "/metrics"); !strings.Contains(body, `cluster_proxy_server_agents_rejected_total{reason="identifiers"} 2`) {
		t.Error("rejections are not counted")
	}
}

func TestCertificatesOnTheWrongPort(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	if _, err := h.connectStreamTLS(t, agentSpec{cluster: "cluster1"}, h.clientTLS(t)); err == nil {
		t.Error("a hub client connected as an agent")
	}
	// Even the hub CA's signature under an agent's name does not help.
	if _, err := h.connectStream(t, agentSpec{cluster: "cluster1", ca: h.hubCA}); err == nil {
		t.Error("an agent certificate of the hub CA connected")
	}
	if _, err := h.dial(t, h.tlsFor(t, h.agentCA, identity.AgentCommonName("cluster1")), "cluster1:443"); err == nil {
		t.Error("an agent dialed as a client")
	}
	if _, err := h.dial(t, h.tlsFor(t, h.agentCA, string(identity.RoleProxyAPI)), "cluster1:443"); err == nil {
		t.Error("a role signed by the agent CA dialed")
	}
	_, err := h.connectStreamTLS(t, agentSpec{cluster: "cluster1"}, h.tlsFor(t, h.agentCA, string(identity.RoleProxyAPI)))
	if err == nil {
		t.Error("the agent CA's certificate without a cluster connected")
	}
}

func TestPacketsWithoutPayloadEndTheirStreamOnly(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	h.mustStream(t, agentSpec{cluster: "cluster1"})
	for number, name := range client.PacketType_name {
		packet := &client.Packet{Type: client.PacketType(number)}
		if packet.Type == client.PacketType_DRAIN {
			continue
		}
		a := h.mustStream(t, agentSpec{cluster: "cluster2"})
		if err := a.stream.Send(packet); err != nil {
			t.Fatal(err)
		}
		<-a.gone
		eventually(t, "the agent is forgotten", func() bool { return h.backends() == 1 })
		stream := h.rawClient(t)
		if err := stream.Send(packet); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("client's %s: %v, want InvalidArgument", name, err)
		}
	}
	conn, err := h.dial(t, h.clientTLS(t), "cluster1:443")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestClientReachesItsOwnConnectionOnly(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	h.mustStream(t, agentSpec{cluster: "cluster1"})
	victim, err := h.dial(t, h.clientTLS(t), "cluster1:443") // connection 1
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close()
	for name, packet := range map[string]*client.Packet{
		"DATA":      {Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1, Data: []byte("evil")}}},
		"CLOSE_REQ": {Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: 1}}},
	} {
		stream := h.rawClient(t)
		if err := stream.Send(dialPacket("cluster1:443", 42)); err != nil {
			t.Fatal(err)
		}
		if response, err := stream.Recv(); err != nil || response.GetDialResponse().GetError() != "" {
			t.Fatal(response, err)
		}
		if err := stream.Send(packet); err != nil {
			t.Fatal(err)
		}
		_, err := stream.Recv()
		wantDenied(t, name+" for another's connection", err)
	}
	stream := h.rawClient(t)
	for range 2 {
		if err := stream.Send(dialPacket("cluster1:443", 43)); err != nil {
			t.Fatal(err)
		}
	}
	var last error
	for last == nil {
		_, last = stream.Recv()
	}
	if status.Code(last) != codes.InvalidArgument {
		t.Errorf("second dial on a stream: %v, want InvalidArgument", last)
	}
	exchange(t, victim, "x", "cluster1:x")
}

// TestAgentAnswersItsOwnDialsOnly has an agent answer another cluster's dial, or end it.
func TestAgentAnswersItsOwnDialsOnly(t *testing.T) {
	for name, attack := range map[string]*client.Packet{
		"answered": {Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{DialResponse: &client.DialResponse{Random: 42, ConnectID: 7}}},
		"ended":    {Type: client.PacketType_DIAL_CLS, Payload: &client.Packet_CloseDial{CloseDial: &client.CloseDial{Random: 42}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, withKonnectivityAgents)
			asked := h.mustStream(t, agentSpec{cluster: "cluster1"})
			asked.manual.Store(true)
			thief := h.mustStream(t, agentSpec{cluster: "cluster2"})
			stream := h.rawClient(t)
			if err := stream.Send(dialPacket("cluster1:443", 42)); err != nil {
				t.Fatal(err)
			}
			<-asked.seen
			if err := thief.stream.Send(attack); err != nil {
				t.Fatal(err)
			}
			// The thief's stream is in order: once it carried a dial, its packet was seen.
			conn, err := h.dial(t, h.clientTLS(t), "cluster2:443")
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			asked.accept(42, 9)
			response, err := stream.Recv()
			if err != nil || response.GetDialResponse().GetConnectID() != 9 {
				t.Errorf("answer %v, %v; want connection 9", response, err)
			}
		})
	}
}

// TestAgentIDs tries what an agent may call itself.
func TestAgentIDs(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	for _, test := range []struct {
		id   string
		want codes.Code
	}{
		{"a", codes.OK},
		{strings.Repeat("a", maxAgentID), codes.OK},
		{strings.Repeat("a", maxAgentID+1), codes.PermissionDenied},
		{strings.Repeat("a", 32<<10), codes.PermissionDenied},
		{"a/b c\"\\", codes.OK},
	} {
		_, err := h.connectStream(t, agentSpec{cluster: "cluster1", id: test.id})
		if status.Code(err) != test.want {
			t.Errorf("an ID of %d bytes: %v, want %s", len(test.id), err, test.want)
		}
	}
	for _, identifiers := range []string{"", strings.Repeat("host=cluster1&", 1000) + "host=cluster1", "host=" + strings.Repeat("a", 4096)} {
		_, err := h.connectStream(t, agentSpec{cluster: "cluster1", identifiers: identifiers + " "})
		if err == nil {
			t.Errorf("identifiers of %d bytes were taken", len(identifiers))
		}
	}
}

// TestBackendsAreCountedOnce connects an agent a second time before its first stream is found
// dead.
func TestBackendsAreCountedOnce(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	h.mustStream(t, agentSpec{cluster: "cluster1", id: "a"})
	if _, err := h.connectStream(t, agentSpec{cluster: "cluster1", id: "a"}); err != nil {
		t.Fatal(err)
	}
	h.mustStream(t, agentSpec{cluster: "cluster2", id: "a"})
	if got := h.backends(); got != 2 {
		t.Errorf("%d backends, want one for each cluster", got)
	}
}

// TestLongHeaders sends with a stream, of which one cluster may have hundreds, more than an
// agent has to say. The server would keep it for as long as the stream.
func TestLongHeaders(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	if _, err := h.connectStream(t, agentSpec{cluster: "evil", id: strings.Repeat("x", 1<<20)}); err == nil {
		t.Error("a stream with a header of 1 MiB was admitted")
	}
	h.mustStream(t, agentSpec{cluster: "cluster1"})
}

type one struct{}

func (one) Count() int { return 1 }

// runStockAgent runs konnectivity's own agent for a cluster called
// "localhost", so that what it dials can be resolved.
func runStockAgent(t *testing.T, h *testHub) {
	t.Helper()
	stop := make(chan struct{})
	config := konnectivityagent.ClientSetConfig{
		Address: h.Addrs().Agent.String(), AgentID: "stock",
		AgentIdentifiers: identity.Identifiers(identity.Hosts("localhost", identity.DefaultAgentNamespace)),
		SyncInterval:     20 * time.Millisecond, ProbeInterval: 20 * time.Millisecond, SyncIntervalCap: 20 * time.Millisecond,
		DialOptions:    []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(h.tlsFor(t, h.agentCA, identity.AgentCommonName("localhost"))))},
		XfrChannelSize: 150,
	}
	clients := config.NewAgentClientSet(nil, stop)
	clients.SetServerCounter(one{})
	clients.Serve()
	t.Cleanup(func() {
		close(stop)
		eventually(t, "the agent has gone", func() bool { return clients.ClientsCount() == 0 })
	})
	eventually(t, "the agent is registered", func() bool { return h.backends() == 1 })
}

func TestStockAgentAndClients(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	runStockAgent(t, h)
	target := fmt.Sprintf("localhost:%d", echoServer(t))

	conn, err := h.dial(t, h.clientTLS(t), target)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "single", "single")
	if err := conn.Close(); err != nil {
		t.Error(err)
	}

	tunnel, err := konnectivity.CreateGRPCTunnel(t.Context(), h.clientAddr, grpc.WithTransportCredentials(credentials.NewTLS(h.clientTLS(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	for i := range 3 {
		conn, err := tunnel.DialContext(t.Context(), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, conn, fmt.Sprint("reusable", i), fmt.Sprint("reusable", i))
		_ = conn.Close()
	}
}

// TestConnectionsOfOneCluster makes connections with one certificate on which it opens no
// stream: there are 64 at most, and those of another cluster are taken.
func TestConnectionsOfOneCluster(t *testing.T) {
	h := startHub(t, withKonnectivityAgents)
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil"))
	config.NextProtos = []string{"h2"}
	settings := func() error {
		conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Write([]byte(http2.ClientPreface)) // it may be closed already
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings()
		_, err = f.ReadFrame()
		return err
	}
	for i := range 64 {
		if err := settings(); err != nil {
			t.Fatalf("connection %d is closed: %v", i, err)
		}
	}
	if err := settings(); err == nil {
		t.Error("connection 65 of one cluster is taken")
	}
	h.mustStream(t, agentSpec{cluster: "cluster1"})
}

// TestNoStreamsUnlessAskedFor has an agent of konnectivity's come to a server that does not
// stand in for one of konnectivity's.
func TestNoStreamsUnlessAskedFor(t *testing.T) {
	h := startHub(t)
	if _, err := h.connectStream(t, agentSpec{cluster: "cluster1"}); err == nil {
		t.Error("a stream of konnectivity's agents was taken")
	}
	config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("cluster1"))
	config.NextProtos = nil
	conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that names no protocol was answered")
	}
}
