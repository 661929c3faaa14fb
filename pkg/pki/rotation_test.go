package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

func TestCheckApart(t *testing.T) {
	one, pair := newCA(t, "a", time.Now(), time.Hour)
	two := testCA(t, "a")
	if err := CheckApart(one, two.CertPEM()); err != nil {
		t.Errorf("two CAs of one name: %v", err)
	}
	again, err := ParseCA(pair)
	if err != nil {
		t.Fatal(err)
	}
	if CheckApart(one, Join(two.CertPEM(), again.CertPEM())) == nil {
		t.Error("a CA is apart from itself")
	}
	if CheckApart(one, []byte("odd")) == nil {
		t.Error("a CA is apart from what cannot be read")
	}
	if !one.Equal(again) || one.Equal(two) || one.Fingerprint() != again.Fingerprint() || one.Fingerprint() == two.Fingerprint() || len(one.Fingerprint()) != 32 {
		t.Error("CAs are told apart wrongly")
	}
	if got := Join(one.CertPEM(), two.CertPEM(), one.CertPEM(), nil); bytes.Count(got, []byte("BEGIN")) != 2 {
		t.Errorf("bundle %s, want two certificates", got)
	}
}

// proof proves a client of clientCA to a server of serverCA that trusts
// trusted, both with TLS 1.3.
func proof(t *testing.T, serverCA, trusted, clientCA *CA, roots []byte, serverName string) error {
	t.Helper()
	serving, err := serverCA.Issue(Leaf{CommonName: "agent", DNSNames: []string{"agent.example.com"}, Server: true, Validity: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(serving.CertPEM, serving.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := parsePool(trusted.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := clientCA.Issue(Leaf{CommonName: "probe", Client: true, Validity: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config, err := ClientConfig(pair, roots, serverName)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
		if server.Handshake() == nil {
			_, _ = server.Write([]byte("SETTINGS"))
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return ProveHTTP2(ctx, near, config)
}

// A proof needs both: the peer's certificate of the right CA and name, and that
// the peer accepts ours.
func TestProveHTTP2(t *testing.T) {
	server := testCA(t, "agents")
	client := testCA(t, "hub")
	other := testCA(t, "other")
	for _, test := range []struct {
		name          string
		trusted, mine *CA
		roots         []byte
		serverName    string
		want          bool
	}{
		{"all is right", client, client, server.CertPEM(), "agent.example.com", true},
		{"ours is of a CA that it does not trust", other, client, server.CertPEM(), "agent.example.com", false},
		{"its own is of another CA", client, client, other.CertPEM(), "agent.example.com", false},
		{"its own is another cluster's", client, client, server.CertPEM(), "other.example.com", false},
	} {
		if err := proof(t, server, test.trusted, test.mine, test.roots, test.serverName); (err == nil) != test.want {
			t.Errorf("%s: %v, want it accepted: %t", test.name, err, test.want)
		}
	}
	// A peer that never says anything proves nothing.
	near, far := net.Pipe()
	defer far.Close()
	pair, err := client.Issue(Leaf{CommonName: "probe", Client: true, Validity: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config, err := ClientConfig(pair, server.CertPEM(), "agent.example.com")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if ProveHTTP2(ctx, near, config) == nil {
		t.Error("silence was taken for a proof")
	}
}
