package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// Fingerprint tells a CA's certificate from every other: 32 hexadecimal digits
// of its SHA-256.
func (ca *CA) Fingerprint() string {
	sum := sha256.Sum256(ca.cert.Raw)
	return hex.EncodeToString(sum[:16])
}

// Equal reports whether both have the same certificate.
func (ca *CA) Equal(other *CA) bool { return bytes.Equal(ca.cert.Raw, other.cert.Raw) }

// NearEnd reports whether a third or less of a CA's life is left.
func (ca *CA) NearEnd(now time.Time) bool {
	return ca.cert.NotAfter.Sub(now) <= ca.cert.NotAfter.Sub(ca.cert.NotBefore)/3
}

// CheckApart refuses a CA that could stand in for one of bundle, PEM: with the
// same key, or with one signed by the other.
func CheckApart(ca *CA, bundle []byte) error {
	others, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return fmt.Errorf("reading the CAs that %q must be apart from: %w", ca.cert.Subject.CommonName, err)
	}
	for _, other := range others {
		key, ok := ca.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if !ok || key.Equal(other.PublicKey) {
			return fmt.Errorf("CAs %q and %q have the same key: they must be two", ca.cert.Subject.CommonName, other.Subject.CommonName)
		}
		if ca.cert.CheckSignatureFrom(other) == nil || other.CheckSignatureFrom(ca.cert) == nil {
			return fmt.Errorf("one of CAs %q and %q is signed by the other: neither may sign the other", ca.cert.Subject.CommonName, other.Subject.CommonName)
		}
	}
	return nil
}

// Join is a bundle of certificates of which each is there once, in order.
func Join(certs ...[]byte) []byte {
	var out []byte
	for _, cert := range certs {
		if len(cert) > 0 && !bytes.Contains(out, cert) {
			out = append(out, cert...)
		}
	}
	return out
}

// ClientConfig is for one dial with a certificate that is in memory only. Peers
// must have a certificate for serverName from one of roots, PEM; sessions are
// never resumed, so that each handshake proves something.
func ClientConfig(pair KeyPair, roots []byte, serverName string) (*tls.Config, error) {
	certificate, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("parsing a client's certificate: %w", err)
	}
	pool, err := parsePool(roots)
	if err != nil {
		return nil, fmt.Errorf("parsing roots: %w", err)
	}
	return TLSParameters{}.apply(&tls.Config{ServerName: serverName, RootCAs: pool, Certificates: []tls.Certificate{certificate}}), nil
}

// ProveHTTP2 makes a TLS handshake on conn and waits for the first byte of an
// HTTP/2 server, which comes after the server has accepted the client's
// certificate and not before: with TLS 1.3 a client's own handshake ends
// earlier than that. It closes conn.
func ProveHTTP2(ctx context.Context, conn net.Conn, config *tls.Config) error {
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	client := tls.Client(conn, config)
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := client.HandshakeContext(ctx); err != nil {
		return err
	}
	if protocol := client.ConnectionState().NegotiatedProtocol; protocol != "h2" {
		return errors.New("the peer does not speak HTTP/2")
	}
	var first [1]byte
	_, err := client.Read(first[:])
	return err
}
