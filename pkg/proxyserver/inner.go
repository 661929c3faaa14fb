package proxyserver

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// innerBuffer is how much the in-memory connection holds each way.
const innerBuffer = 256 << 10

// innerClient is a client of konnectivity's server in its own process, for
// clients that speak carriers to agents that do not.
type innerClient struct {
	listener *bufconn.Listener
	server   *grpc.Server
}

func newInnerClient(service client.ProxyServiceServer) *innerClient {
	inner := &innerClient{
		listener: bufconn.Listen(innerBuffer),
		// What the stream checks besides roles, it checks here too.
		server: grpc.NewServer(grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return handler(srv, &clientStream{ServerStream: stream})
		})),
	}
	client.RegisterProxyServiceServer(inner.server, service)
	return inner
}

func (c *innerClient) serve() error { return c.server.Serve(c.listener) }

func (c *innerClient) stop() { c.server.Stop() }

// dial connects through konnectivity's server. Its errors are *carrier.Error.
func (c *innerClient) dial(ctx context.Context, address string) (net.Conn, error) {
	lifetime, cancel := context.WithCancel(context.Background())
	tunnel, err := konnectivity.CreateSingleUseGrpcTunnelWithContext(ctx, lifetime, "passthrough:///inner",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.listener.DialContext(ctx) }))
	if err == nil {
		var conn net.Conn
		if conn, err = tunnel.DialContext(ctx, "tcp", address); err == nil {
			return &innerConn{Conn: conn, cancel: cancel}, nil
		}
	}
	cancel()
	code := agentapi.RefusalCode(err.Error())
	if ctx.Err() != nil {
		code = carrier.TimedOut
	}
	return nil, &carrier.Error{Code: code, Message: err.Error()}
}

// innerConn makes of konnectivity's connection what Relay needs.
type innerConn struct {
	net.Conn
	cancel context.CancelFunc
}

// CloseWrite does nothing: konnectivity has no half close, and to close both
// ways would lose what the target still says. A client that closed both ways
// resets its carrier when the target does not end soon after.
func (c *innerConn) CloseWrite() error { return nil }

// SetDeadline ends the connection at once. Relay sets one only when the other
// side broke, and konnectivity knows none.
func (c *innerConn) SetDeadline(time.Time) error {
	c.cancel()
	return nil
}

func (c *innerConn) Close() error {
	defer c.cancel()
	return c.Conn.Close()
}
