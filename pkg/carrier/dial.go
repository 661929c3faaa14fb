package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

// ErrNoCarriers is the error of DialTLS if ALPN did not select carriers: the peer
// is a proxy server of konnectivity's, or no proxy server at all.
var ErrNoCarriers = errors.New("the proxy server does not speak carriers")

// DialTLS makes a carrier of a connection that this side dialed: it makes the TLS
// handshake, checks that ALPN selected carriers, and sends HELLO. The config must
// name ALPN in NextProtos. The error of the handshake is that of crypto/tls. With
// an error the connection is closed.
func DialTLS(ctx context.Context, raw net.Conn, config *tls.Config, hello Hello, cfg Config) (*Carrier, error) {
	conn, err := ShakeHands(ctx, raw, config)
	if err != nil {
		return nil, err
	}
	return Dialed(ctx, conn, hello, cfg)
}

// ShakeHands is the first part of DialTLS: it makes the TLS handshake and checks that
// ALPN selected carriers. With an error the connection is closed.
func ShakeHands(ctx context.Context, raw net.Conn, config *tls.Config) (*tls.Conn, error) {
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != ALPN {
		_ = conn.Close()
		return nil, ErrNoCarriers
	}
	return conn, nil
}
