package tunnel

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// endedStream is a stream that has ended.
type endedStream struct{ grpc.ClientStream }

func (endedStream) Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (endedStream) RecvMsg(any) error { return io.EOF }

// TestStreamEndsAfterItsDial has a stream end between the dial's answer and the moment in which
// konnectivity's client knows the connection. It must learn the end after that, or the
// connection's reader would wait for ever.
func TestStreamEndsAfterItsDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &dialStream{ClientStream: endedStream{}, dialed: make(chan struct{}), connected: true, state: &dialState{ready: make(chan struct{})}}
		close(s.dialed)
		ended := make(chan error, 1)
		go func() { ended <- s.RecvMsg(&client.Packet{}) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the client learns the end before it knows the connection")
		}
		close(s.state.ready)
		if err := <-ended; err != io.EOF {
			t.Errorf("the stream ends with %v, want %v", err, io.EOF)
		}
	})
}
