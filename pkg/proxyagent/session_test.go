package proxyagent

import (
	"context"
	"io"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// fakeStream gives packets and keeps what is sent.
type fakeStream struct {
	grpc.ClientStream
	incoming []*client.Packet
	sent     []*client.Packet
}

func (f *fakeStream) Context() context.Context { return context.Background() }

func (f *fakeStream) RecvMsg(m any) error {
	if len(f.incoming) == 0 {
		return io.EOF
	}
	proto.Reset(m.(*client.Packet))
	proto.Merge(m.(*client.Packet), f.incoming[0])
	f.incoming = f.incoming[1:]
	return nil
}

func (f *fakeStream) SendMsg(m any) error {
	f.sent = append(f.sent, m.(*client.Packet))
	return nil
}

func dialRequest(network, address string, random int64) *client.Packet {
	return &client.Packet{Type: client.PacketType_DIAL_REQ, Payload: &client.Packet_DialRequest{
		DialRequest: &client.DialRequest{Protocol: network, Address: address, Random: random}}}
}

func TestControlSession(t *testing.T) {
	data := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1, Data: []byte("x")}}}
	fake := &fakeStream{incoming: []*client.Packet{
		dialRequest("tcp", "cluster2:443", 7),
		dialRequest("unix", "/run/secret.sock", 8),
		{Type: client.PacketType_DIAL_REQ},
		{Type: client.PacketType_DATA},
		{Type: client.PacketType_CLOSE_REQ},
		agentapi.ControlPacket(agentapi.MoreCarriers, 3),
		agentapi.ControlPacket(agentapi.ServerCount, 3),
		dialRequest("tcp", "cluster1:443", 9),
		data,
	}}
	dials := make(chan struct{}, 10)
	made := pool.New(pool.Config{Dial: func(ctx context.Context) (*carrier.Carrier, error) {
		dials <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	defer made.Close()
	servers := newServers(context.Background(), &carrierDialer{denied: newAgentMetrics(prometheus.NewRegistry()).dialsRejected}, pool.Config{}, dial.FullJitter)
	servers.sessions["server1"] = &serverSession{pool: made}
	stream := &controlSession{ClientStream: fake, cancel: func() {}, servers: servers, serverID: "server1", decision: policy.Policy{Cluster: "cluster1", KubeAPIServer: "10.0.0.1:6443", Handler: "127.0.0.1:7443"}.Target}

	var packet client.Packet
	if err := stream.RecvMsg(&packet); err != nil {
		t.Fatal(err)
	}
	if got := packet.GetDialRequest(); got.GetAddress() != "10.0.0.1:6443" || got.GetProtocol() != "tcp" || got.GetRandom() != 9 {
		t.Errorf("the first packet that got through is %v, want the allowed dial with the agent's own address", &packet)
	}
	for range 3 {
		<-dials // the number that was asked for
	}
	if n := servers.Count(); n != 3 {
		t.Errorf("the agent looks for %d servers, want 3", n)
	}
	if len(fake.sent) != 2 {
		t.Fatalf("%d answers were sent, want one for each denied dial", len(fake.sent))
	}
	for i, random := range []int64{7, 8} {
		if answer := fake.sent[i].GetDialResponse(); answer.GetRandom() != random || answer.GetError() == "" {
			t.Errorf("answer %d is %v, want an error for dial %d", i, answer, random)
		}
	}
	if err := stream.RecvMsg(&packet); err != nil || !proto.Equal(&packet, data) {
		t.Errorf("data arrived as %v, %v; want it unchanged", &packet, err)
	}
	if err := stream.RecvMsg(&packet); err != io.EOF {
		t.Errorf("the end of the stream arrived as %v", err)
	}
}

// TestControlSessionCountsConnections follows connections that konnectivity's agent
// opens and closes.
func TestControlSessionCountsConnections(t *testing.T) {
	answer := func(id int64, text string) *client.Packet {
		return &client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{
			DialResponse: &client.DialResponse{ConnectID: id, Error: text}}}
	}
	closed := func(id int64) *client.Packet {
		return &client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{
			CloseResponse: &client.CloseResponse{ConnectID: id}}}
	}
	servers := newServers(context.Background(), nil, pool.Config{}, dial.FullJitter)
	stream := &controlSession{ClientStream: &fakeStream{}, servers: servers}
	for i, step := range []struct {
		packet *client.Packet
		want   int
	}{
		{answer(1, ""), 1},
		{answer(2, ""), 2},
		{answer(0, "connection refused"), 2},
		{closed(1), 1},
		{closed(1), 1},
		{closed(9), 1},
	} {
		if err := stream.SendMsg(step.packet); err != nil {
			t.Fatal(err)
		}
		if got := servers.open(); got != step.want {
			t.Errorf("step %d: %d connections are open, want %d", i, got, step.want)
		}
	}
	stream.closeAll()
	_ = stream.SendMsg(answer(3, ""))
	if got := servers.open(); got != 0 {
		t.Errorf("%d connections are open after the end of the stream, want none", got)
	}
}
