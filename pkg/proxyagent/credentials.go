package proxyagent

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// reloadingTLS asks for a TLS configuration at each handshake, so that renewed
// certificates and CAs are used without a restart.
type reloadingTLS struct {
	source     *pki.Reloader
	serverName string
	nextProtos []string // besides gRPC's own
	timeout    time.Duration
	handshakes *handshakes
}

func (c reloadingTLS) current() credentials.TransportCredentials {
	config := c.source.ClientConfig(c.serverName)
	config.NextProtos = append(config.NextProtos, c.nextProtos...)
	return credentials.NewTLS(config)
}

func (c reloadingTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	secure, info, err := c.current().ClientHandshake(ctx, authority, conn)
	if err != nil {
		c.handshakes.failed(err)
		return nil, nil, pki.Explain(err)
	}
	return &watchedConn{Conn: secure, handshakes: c.handshakes}, info, nil
}

func (c reloadingTLS) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.current().ServerHandshake(conn)
}

func (c reloadingTLS) Info() credentials.ProtocolInfo { return c.current().Info() }

func (c reloadingTLS) Clone() credentials.TransportCredentials { return c }

func (c reloadingTLS) OverrideServerName(string) error { return nil }
