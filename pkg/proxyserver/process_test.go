package proxyserver

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestOneConnectionOfManyProcesses says on each stream of one connection that it is of another
// process: the server keeps one, and none when the connection has ended.
func TestOneConnectionOfManyProcesses(t *testing.T) {
	h := startHub(t)
	conn, err := grpc.NewClient(h.Addrs().Agent.String(), grpc.WithTransportCredentials(credentials.NewTLS(h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil")))))
	if err != nil {
		t.Fatal(err)
	}
	processes := func() int {
		h.conns.mu.Lock()
		defer h.conns.mu.Unlock()
		return len(h.conns.processes)
	}
	for i := range 20 {
		// Without an agent ID it is refused, and may come back at once.
		ctx := metadata.AppendToOutgoingContext(t.Context(), agentapi.ProcessHeader, fmt.Sprint("secret", i))
		stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err == nil {
			t.Fatal("an agent without an ID was admitted")
		}
	}
	if n := processes(); n != 1 {
		t.Errorf("the server knows %d processes of one connection, want 1", n)
	}
	_ = conn.Close()
	eventually(t, "the server knows no process", func() bool { return processes() == 0 })
}
