package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

var errNoTLS = errors.New("the connection has no TLS")

// handshaken are credentials for connections whose TLS handshake is complete.
type handshaken struct {
	// admit returns the connection to use; nil takes each as it is.
	admit func(*tls.Conn) (net.Conn, error)
}

// authInfo is what gRPC is told about a connection.
type authInfo struct {
	credentials.TLSInfo
	conn *tls.Conn
}

func (h handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil, errNoTLS
	}
	if h.admit != nil {
		var err error
		if conn, err = h.admit(secure); err != nil {
			return nil, nil, err
		}
	}
	return conn, authInfo{conn: secure, TLSInfo: credentials.TLSInfo{
		State:          secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}}, nil
}

func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are credentials of a server")
}

func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (h handshaken) Clone() credentials.TransportCredentials { return h }

func (handshaken) OverrideServerName(string) error { return nil }

// connOf returns the connection of a stream. The credentials let none without TLS pass.
func connOf(ctx context.Context) *tls.Conn {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(authInfo).conn
}
