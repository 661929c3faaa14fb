package proxyserver

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestConnectionsAreLogged wants a line for each connection of a client, and none
// for those of the proxy API, which has an audit log.
func TestConnectionsAreLogged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hub := newMemHub(t, dir)
		s, stop := hub.start("server-0")
		defer stop()
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		s.logger = logger
		agent := s.connect("cluster1", "agent", 2)
		defer agent.stop()
		for _, role := range []identity.Role{identity.RoleClient, identity.RoleProxyAPI} {
			source := pkitest.NewReloader(t, hub.hubCA, pki.Leaf{CommonName: string(role), Client: true}, hub.hubCA)
			s.useCarrier(source.ClientConfig("127.0.0.1"))
			s.useStream(source.ClientConfig("127.0.0.1"))
		}
		synctest.Wait()
		var lines []string
		for line := range strings.Lines(logger.GetSink().(ktesting.Underlier).GetBuffer().String()) {
			if strings.Contains(line, "Connection ended") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 2 {
			t.Fatalf("%d connections are logged, want the client's two: %q", len(lines), lines)
		}
		for i, sent := range []string{`sent=5`, `sent=1`} { // a frame of one byte, and a byte
			for _, want := range []string{`role="` + string(identity.RoleClient) + `"`, `cluster="cluster1"`, `target="cluster1:443"`, sent, `received=0`, `duration="3s"`} {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %s in it", i, lines[i], want)
				}
			}
		}
	})
}

// useCarrier sends a byte to cluster1 on a carrier of a client.
func (s *memServer) useCarrier(config *tls.Config) {
	t := s.hub.t
	config.NextProtos = []string{carrier.ALPN}
	c, err := carrier.Dialed(t.Context(), tls.Client(s.clients.dial(nil), config), carrier.Hello{}, carrier.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	synctest.Wait()
	_ = c.Close()
}

// useStream sends a byte to cluster1 on a stream of konnectivity's clients.
func (s *memServer) useStream(config *tls.Config) {
	t := s.hub.t
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.clients.dial(nil), nil }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := client.NewProxyServiceClient(conn).Proxy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(dialPacket("cluster1:443", 42)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := stream.Send(&client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1, Data: []byte("x")}}}); err != nil {
		t.Error(err)
	}
	_ = stream.CloseSend()
	for err == nil {
		_, err = stream.Recv()
	}
	synctest.Wait()
}
