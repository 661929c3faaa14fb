package pki

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

// issuedAt writes a certificate as it is made by somebody whose clock is off.
func issuedAt(t *testing.T, ca *CA, off time.Duration) Files {
	t.Helper()
	leaf := Leaf{CommonName: "both", DNSNames: []string{"server"}, Server: true, Client: true}
	return filesAt(t, t.TempDir(), ca, leaf, ca, time.Now().Add(off))
}

func longLivedCA(t *testing.T) *CA {
	t.Helper()
	ca, _ := newCA(t, "ca", time.Now().Add(-24*time.Hour), 48*time.Hour)
	return ca
}

func TestClockSkew(t *testing.T) {
	ca := longLivedCA(t)
	good := load(t, issuedAt(t, ca, 0))
	for _, off := range []time.Duration{-5*time.Minute + time.Second, 5*time.Minute - time.Second} {
		other := load(t, issuedAt(t, ca, off))
		if _, _, err := handshake(t, other.ServerConfig(tls.RequireAndVerifyClientCert), good.ClientConfig("server")); err != nil {
			t.Errorf("a server that is %s off: %v", off, err)
		}
		if _, _, err := handshake(t, good.ServerConfig(tls.RequireAndVerifyClientCert), other.ClientConfig("server")); err != nil {
			t.Errorf("a client that is %s off: %v", off, err)
		}
	}
	for _, off := range []time.Duration{time.Hour, -2 * time.Hour} {
		other := load(t, issuedAt(t, ca, off))
		for who, sides := range map[string][2]*Reloader{"server": {other, good}, "client": {good, other}} {
			_, _, err := handshake(t, sides[0].ServerConfig(tls.RequireAndVerifyClientCert), sides[1].ClientConfig("server"))
			if err == nil {
				t.Fatalf("a %s that is %s off is accepted", who, off)
			}
			if explained := Explain(err); HandshakeReason(err) != ReasonClockSkew || !strings.Contains(explained.Error(), "clock skew") {
				t.Errorf("a %s that is %s off: %q, %v, want %q and an explanation", who, off, HandshakeReason(err), explained, ReasonClockSkew)
			}
		}
	}
}

func TestHandshakeReason(t *testing.T) {
	ca, other := testCA(t, "ca"), testCA(t, "other")
	leaf := Leaf{CommonName: "both", DNSNames: []string{"server"}, Server: true, Client: true}
	server, foreign := load(t, filesOf(t, t.TempDir(), ca, leaf, ca)), load(t, filesOf(t, t.TempDir(), other, leaf, other))
	_, _, err := handshake(t, server.ServerConfig(tls.RequireAndVerifyClientCert), foreign.ClientConfig("server"))
	if HandshakeReason(err) != ReasonUnknownCA || Explain(err) != err {
		t.Errorf("%q for %v, want %q and no explanation", HandshakeReason(err), err, ReasonUnknownCA)
	}
	_, _, err = handshake(t, server.ServerConfig(tls.RequireAndVerifyClientCert), server.ClientConfig("another"))
	if HandshakeReason(err) != ReasonCertificate {
		t.Errorf("%q for %v, want %q", HandshakeReason(err), err, ReasonCertificate)
	}
	if HandshakeReason(nil) != ReasonOther || Explain(nil) != nil {
		t.Error("no error has a reason")
	}
}

// TestNoCertificate has clients with a certificate of the CA that the server names,
// and with one of another.
func TestNoCertificate(t *testing.T) {
	ca, other := testCA(t, "ca"), testCA(t, "other")
	leaf := Leaf{CommonName: "both", DNSNames: []string{"server"}, Server: true, Client: true}
	server := load(t, filesOf(t, t.TempDir(), ca, leaf, ca))
	for name, test := range map[string]struct {
		signer *CA
		want   bool
	}{"of the CA": {ca, false}, "of another": {other, true}} {
		client := load(t, filesOf(t, t.TempDir(), test.signer, leaf, ca))
		near, far := net.Pipe()
		go func() {
			conn := tls.Client(far, client.ClientConfig("server"))
			_ = conn.Handshake()
			_, _ = conn.Read(make([]byte, 1)) // the server's refusal comes after the handshake
		}()
		err := tls.Server(near, server.ServerConfig(tls.RequireAndVerifyClientCert)).Handshake()
		if NoCertificate(err) != test.want || (err != nil) != test.want {
			t.Errorf("a certificate %s: %v, want that there is none: %v", name, err, test.want)
		}
		near.Close()
		far.Close()
	}
}
