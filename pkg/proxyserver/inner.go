package proxyserver

import (
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// innerBuffer is how much the in-memory connection holds each way.
const innerBuffer = 256 << 10

// innerClient is a client of konnectivity's server in its own process, for
// clients that speak carriers to agents that do not.
type innerClient struct {
	listener *bufconn.Listener
	server   *grpc.Server
	tunnel   konnectivity.ReusableTunnel
}

func newInnerClient(service client.ProxyServiceServer) (*innerClient, error) {
	inner := &innerClient{
		listener: bufconn.Listen(innerBuffer),
		// What the stream checks besides roles, it checks here too.
		server: grpc.NewServer(grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return handler(srv, &clientStream{ServerStream: stream})
		})),
	}
	client.RegisterProxyServiceServer(inner.server, service)
	// Without a blocking option this does no I/O.
	tunnel, err := konnectivity.CreateGRPCTunnel(context.Background(), "passthrough:///inner",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inner.listener.DialContext(ctx) }))
	if err != nil {
		return nil, fmt.Errorf("preparing the way to agents without carriers: %w", err)
	}
	inner.tunnel = tunnel
	return inner, nil
}

func (c *innerClient) serve() error { return c.server.Serve(c.listener) }

func (c *innerClient) stop() {
	_ = c.tunnel.Close()
	c.server.Stop()
}

// dial connects through konnectivity's server. Its errors are *carrier.Error.
func (c *innerClient) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.tunnel.DialContext(ctx, "tcp", address)
	if err == nil {
		return conn, nil
	}
	text := err.Error()
	code := carrier.Unreachable
	switch {
	case ctx.Err() != nil:
		code = carrier.TimedOut
	case strings.Contains(text, "No agent available"):
		code = carrier.NoAgent
	case strings.Contains(text, "denied"):
		code = carrier.Denied
	case strings.Contains(text, "connection refused"):
		code = carrier.Refused
	case strings.Contains(text, "timeout"):
		code = carrier.TimedOut
	}
	return nil, &carrier.Error{Code: code, Message: text}
}
