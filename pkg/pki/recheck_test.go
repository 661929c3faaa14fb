package pki

import (
	"crypto/tls"
	"errors"
	"os"
	"testing"
	"time"
)

// A certificate counts until its end, and until its CA leaves the bundle.
func TestRecheck(t *testing.T) {
	old, next := testCA(t, "old"), testCA(t, "next")
	files := filesOf(t, t.TempDir(), next, Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}, old)
	server := load(t, files)
	client := load(t, filesOf(t, t.TempDir(), old, Leaf{CommonName: "c", Client: true, Validity: time.Hour}, next))
	_, state, err := handshake(t, server.ServerConfig(tls.RequireAndVerifyClientCert), client.ClientConfig("s"))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := PeerCertificate(state)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(bundle ...*CA) {
		t.Helper()
		var data []byte
		for _, ca := range bundle {
			data = append(data, ca.CertPEM()...)
		}
		if err := os.WriteFile(files.CA, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := server.Load(); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		bundle []*CA
		want   error
	}{
		"its CA alone":   {bundle: []*CA{old}},
		"both CAs":       {bundle: []*CA{old, next}},
		"the next alone": {bundle: []*CA{next}, want: errUntrusted},
	} {
		replace(test.bundle...)
		for range 2 { // the second time from memory
			if err := server.Recheck(shown, time.Now()); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		}
	}
	replace(old)
	if err := server.Recheck(shown, shown.leaf.NotAfter); err != nil {
		t.Errorf("at its end: %v", err)
	}
	if err := server.Recheck(shown, shown.leaf.NotAfter.Add(time.Second)); !errors.Is(err, ErrExpired) {
		t.Errorf("after its end: %v, want ErrExpired", err)
	}
}
