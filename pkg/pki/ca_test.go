package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testCA(t testing.TB, name string) *CA {
	t.Helper()
	ca, _ := newCA(t, name, time.Now(), time.Hour)
	return ca
}

func newCA(t testing.TB, name string, now time.Time, validity time.Duration) (*CA, KeyPair) {
	t.Helper()
	pair, err := NewCA(name, now, validity)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := ParseCA(pair)
	if err != nil {
		t.Fatal(err)
	}
	return ca, pair
}

func csr(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// greedyRequest asks for everything that a CSR can ask for.
func greedyRequest(t testing.TB) *x509.CertificateRequest {
	t.Helper()
	basic, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return &x509.CertificateRequest{
		Subject:        pkix.Name{CommonName: "victim", Organization: []string{"system:masters"}, Country: []string{"XX"}},
		DNSNames:       []string{"victim.example"},
		IPAddresses:    []net.IP{net.IPv4(10, 0, 0, 1)},
		EmailAddresses: []string{"a@victim.example"},
		URIs:           []*url.URL{{Scheme: "spiffe", Host: "victim"}},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: basic},
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}},
		},
	}
}

func TestSignRequestCopiesNothingButTheKey(t *testing.T) {
	ca, key := testCA(t, "agents"), ecKey(t, elliptic.P256())
	leaf := Leaf{CommonName: "own", Organizations: []string{"o"}, DNSNames: []string{"own.example"}, Client: true, Validity: 24 * time.Hour}
	signed, err := ca.SignRequest(csr(t, greedyRequest(t), key), leaf, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := parseCertificate(signed)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		t.Error("the certificate is for another key")
	}
	if cert.IsCA || !cert.BasicConstraintsValid || cert.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("IsCA %v, key usage %b, want no CA, for signatures only", cert.IsCA, cert.KeyUsage)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage); diff != "" {
		t.Errorf("extended key usage (-want +got):\n%s", diff)
	}
	if got := cert.Subject.String(); got != "CN=own,O=o" {
		t.Errorf("subject %q, want CN=own,O=o", got)
	}
	if !cmp.Equal(cert.DNSNames, leaf.DNSNames) || len(cert.IPAddresses)+len(cert.EmailAddresses)+len(cert.URIs) != 0 {
		t.Errorf("SANs of the request: %v %v %v %v, want %v alone", cert.DNSNames, cert.IPAddresses, cert.EmailAddresses, cert.URIs, leaf.DNSNames)
	}
	for _, extension := range cert.Extensions {
		if extension.Id.Equal(asn1.ObjectIdentifier{1, 2, 3, 4}) {
			t.Error("a foreign extension was copied")
		}
	}
	if !cert.NotAfter.Equal(ca.NotAfter()) {
		t.Errorf("leaf ends %s, its CA %s, want the same time", cert.NotAfter, ca.NotAfter())
	}
}

func TestParseRequestShowsEverything(t *testing.T) {
	got, err := ParseRequest(csr(t, greedyRequest(t), ecKey(t, elliptic.P256())))
	if err != nil {
		t.Fatal(err)
	}
	want := Request{
		CommonName: "victim", Organizations: []string{"system:masters"}, OtherSubject: []string{"2.5.4.6=XX"},
		DNSNames:        []string{"victim.example"},
		OtherSANs:       []string{"email:a@victim.example", "ip:10.0.0.1", "uri:spiffe://victim"},
		OtherExtensions: []string{"2.5.29.19", "1.2.3.4"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}

func TestParseRequestShowsNamesThatGoIgnores(t *testing.T) {
	// otherName (tag 0) and registeredID (tag 8), which crypto/x509 skips.
	names, err := asn1.Marshal([]asn1.RawValue{
		{Class: asn1.ClassContextSpecific, Tag: 8, Bytes: []byte{42, 3, 4}},
		{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte("a.example")},
	})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{
		Subject:         pkix.Name{CommonName: "a"},
		ExtraExtensions: []pkix.Extension{{Id: oidSubjectAlt, Value: names}},
	}
	got, err := ParseRequest(csr(t, template, ecKey(t, elliptic.P256())))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"tag:8"}, got.OtherSANs); diff != "" {
		t.Errorf("other SANs (-want +got):\n%s", diff)
	}
}

func TestWeakOrForgedRequestsAreRefused(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	forged := csr(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}}, ecKey(t, elliptic.P256()))
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	for name, request := range map[string][]byte{
		"RSA key of 1024 bits": csr(t, &x509.CertificateRequest{}, weak),
		"curve":                csr(t, &x509.CertificateRequest{}, ecKey(t, elliptic.P224())),
		"signature":            pem.EncodeToMemory(block),
		"no CERTIFICATE":       []byte("garbage"),
	} {
		if _, err := ParseRequest(request); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: ParseRequest = %v, want an error that names it", name, err)
		}
		if _, err := testCA(t, "ca").SignRequest(request, Leaf{CommonName: "a", Client: true, Validity: time.Hour}, time.Now()); err == nil {
			t.Errorf("%s: signed, want an error", name)
		}
	}
}

// upstreamCA is what an older cluster-proxy keeps in its signer Secret.
func upstreamCA(t testing.TB, marshal func(*rsa.PrivateKey) (string, []byte)) KeyPair {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: identity.Organization},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	kind, keyDER := marshal(key)
	return KeyPair{
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: keyDER}),
	}
}

func TestUpstreamCAIsAccepted(t *testing.T) {
	for name, marshal := range map[string]func(*rsa.PrivateKey) (string, []byte){
		"PKCS8": func(key *rsa.PrivateKey) (string, []byte) {
			der, _ := x509.MarshalPKCS8PrivateKey(key)
			return "PRIVATE KEY", der
		},
		"PKCS1": func(key *rsa.PrivateKey) (string, []byte) {
			return "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ca, err := ParseCA(upstreamCA(t, marshal))
			if err != nil {
				t.Fatal(err)
			}
			leaf := Leaf{CommonName: "a", Server: true, DNSNames: []string{"a"}, Validity: 30 * time.Minute}
			pair, err := ca.Issue(leaf, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if reason := RenewalReason(pair.CertPEM, ca, leaf, time.Now()); reason != "" {
				t.Errorf("fresh certificate: %s, want no reason to renew it", reason)
			}
		})
	}
}

func TestParseCARefuses(t *testing.T) {
	ca, err := NewCA("a", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCA("a", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := testCA(t, "a").Issue(Leaf{CommonName: "l", Client: true, Validity: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for want, pair := range map[string]KeyPair{
		"does not belong":      {ca.CertPEM, other.KeyPEM},
		"is not a CA":          leaf,
		"no certificate in":    {nil, ca.KeyPEM},
		"no private key in":    {ca.CertPEM, ca.CertPEM},
		"parsing CA certifica": {pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: []byte{1}}), ca.KeyPEM},
	} {
		if _, err := ParseCA(pair); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCA = %v, want %q", err, want)
		}
	}
}

func TestRenewalReason(t *testing.T) {
	ca, now := testCA(t, "ca"), time.Now()
	leaf := Leaf{
		CommonName: "a", Organizations: []string{"o"}, DNSNames: []string{"b", "a"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Validity: 30 * time.Minute,
	}
	pair, err := ca.Issue(leaf, now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*Leaf)) Leaf { l := leaf; change(&l); return l }
	for name, test := range map[string]struct {
		ca   *CA
		leaf Leaf
		now  time.Time
		want string
	}{
		"fresh":       {ca, leaf, now, ""},
		"other order": {ca, with(func(l *Leaf) { l.DNSNames = []string{"a", "b", "a"} }), now, ""},
		"two thirds":  {ca, leaf, now.Add(17 * time.Minute), ""},
		"one third":   {ca, leaf, now.Add(19 * time.Minute), "expires"},
		"issuer":      {testCA(t, "ca"), leaf, now, "not signed"},
		"name":        {ca, with(func(l *Leaf) { l.CommonName = "b" }), now, "common name"},
		"DNS":         {ca, with(func(l *Leaf) { l.DNSNames = []string{"a"} }), now, "DNS"},
		"IP":          {ca, with(func(l *Leaf) { l.IPs = nil }), now, "IP"},
		"usage":       {ca, with(func(l *Leaf) { l.Client = true }), now, "usages"},
		"groups":      {ca, with(func(l *Leaf) { l.Organizations = nil }), now, "organizations"},
	} {
		got := RenewalReason(pair.CertPEM, test.ca, test.leaf, test.now)
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if RenewalReason([]byte("garbage"), ca, leaf, now) == "" {
		t.Error("garbage is still good")
	}
}

func FuzzParseCA(f *testing.F) {
	pair, err := NewCA("a", time.Now(), time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pair.CertPEM, pair.KeyPEM)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		ca, err := ParseCA(KeyPair{cert, key})
		if (ca == nil) == (err == nil) {
			t.Fatalf("ParseCA = %v, %v; want a CA or an error", ca, err)
		}
		_, _ = NotAfter(cert)
		_, _ = parsePool(cert)
	})
}

func FuzzParseRequest(f *testing.F) {
	f.Add(csr(f, greedyRequest(f), ecKey(f, elliptic.P256())))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(_ *testing.T, request []byte) {
		_, _ = ParseRequest(request)
		_, _ = otherNames(request)
	})
}

func TestAnExpiredCADoesNotSign(t *testing.T) {
	ca := testCA(t, "ca")
	if _, err := ca.Issue(Leaf{CommonName: "l", Client: true, Validity: time.Hour}, time.Now().Add(2*time.Hour)); err == nil {
		t.Error("signed")
	}
}
