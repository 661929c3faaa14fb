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

// CheckApart refuses two CAs of which one could stand in for the other: with the
// same key, or with one signed by the other.
func CheckApart(a, b *CA) error {
	key, ok := a.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || key.Equal(b.cert.PublicKey):
		return fmt.Errorf("CAs %q and %q have the same key: they must be two", a.cert.Subject.CommonName, b.cert.Subject.CommonName)
	case a.cert.CheckSignatureFrom(b.cert) == nil:
		return fmt.Errorf("CA %q is signed by CA %q: neither may sign the other", a.cert.Subject.CommonName, b.cert.Subject.CommonName)
	case b.cert.CheckSignatureFrom(a.cert) == nil:
		return fmt.Errorf("CA %q is signed by CA %q: neither may sign the other", b.cert.Subject.CommonName, a.cert.Subject.CommonName)
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
