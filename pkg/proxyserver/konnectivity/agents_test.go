package konnectivity

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// sentPackets is a stream that keeps what is sent on it.
type sentPackets struct {
	grpc.ServerStream
	ctx  context.Context
	sent []*client.Packet
}

func (s *sentPackets) Context() context.Context { return s.ctx }

func (s *sentPackets) SendMsg(m any) error {
	s.sent = append(s.sent, m.(*client.Packet))
	return nil
}

// TestUnansweredDialsAreForgotten asks konnectivity's own agent for dials that it
// never answers: they take memory for two minutes at most.
func TestUnansweredDialsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &sentPackets{ctx: t.Context()}
		s := newAgentStream(wire)
		for random := range int64(3) {
			_ = s.SendMsg(dialPacket("cluster1:443", random))
		}
		_ = s.SendMsg(&client.Packet{Type: client.PacketType_DIAL_CLS, Payload: &client.Packet_CloseDial{CloseDial: &client.CloseDial{Random: 0}}})
		if got := len(s.pending); got != 2 {
			t.Errorf("%d dials are pending after one of three was given up, want 2", got)
		}
		time.Sleep(unanswered + time.Second)
		_ = s.SendMsg(dialPacket("cluster1:443", 4))
		if got := len(s.pending); got != 1 {
			t.Errorf("%d dials are pending a minute later, want the last one", got)
		}
		wire.sent = nil
		if s.passes(dialResponse(1, 7, "")) {
			t.Error("the answer to a forgotten dial passes")
		}
		if len(wire.sent) != 1 || wire.sent[0].GetCloseRequest().GetConnectID() != 7 {
			t.Errorf("the agent is told %v, want to close connection 7", wire.sent)
		}
	})
}
