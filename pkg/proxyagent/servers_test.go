package proxyagent

import (
	"context"
	"net"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

func TestStreamsOfAServerThatForgotTheAgentEnd(t *testing.T) {
	s := newServers(nil, carrier.PoolConfig{MinIdle: 1}, carrier.FullJitter)
	ended := make(chan string, 3)
	leave := s.join("forgot", false, func() { ended <- "first" })
	defer leave()
	defer s.join("forgot", false, func() { ended <- "second" })()
	defer s.join("knows", false, func() { ended <- "another server's" })()

	here, there := net.Pipe()
	defer there.Close()
	go func() { // the server: it takes HELLO, and knows of nobody
		c, _, err := carrier.Accepted(context.Background(), there, carrier.Config{Role: carrier.Opener})
		if err == nil {
			c.Abort(&carrier.Error{Code: carrier.NoAgent, Message: "no such session"})
		}
	}()
	dialed := false
	s.mu.Lock()
	pool := s.newPool("forgot", func(ctx context.Context) (*carrier.Carrier, error) {
		if dialed {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		dialed = true
		return carrier.Dialed(ctx, here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
	})
	s.mu.Unlock()
	defer pool.Close()
	got := map[string]bool{<-ended: true, <-ended: true}
	if !got["first"] || !got["second"] {
		t.Errorf("streams that ended: %v, want both to the server that forgot", got)
	}
}
