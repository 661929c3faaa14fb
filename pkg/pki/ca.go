package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	certificateBlock = "CERTIFICATE"

	// backdate absorbs clocks that run behind the signer's.
	backdate = 5 * time.Minute
)

// KeyPair is a certificate and its private key in PEM.
type KeyPair struct{ CertPEM, KeyPEM []byte }

// CA signs leaves. It is safe for concurrent use.
type CA struct {
	cert    *x509.Certificate
	signer  crypto.Signer
	certPEM []byte
}

// Leaf says what a certificate holds. It is the whole template: nothing else
// gets into a certificate.
type Leaf struct {
	CommonName          string
	Organizations       []string
	OrganizationalUnits []string
	DNSNames            []string
	IPs                 []net.IP
	// Server and Client are the extended key usages; at least one is needed.
	Server, Client bool
	// Validity is counted from now and cut at the CA's own end.
	Validity time.Duration
}

// NewCA makes a self-signed CA with an ECDSA P-256 key.
func NewCA(commonName string, now time.Time, validity time.Duration) (KeyPair, error) {
	if validity <= 0 {
		return KeyPair{}, fmt.Errorf("making CA %q: validity %s is not positive", commonName, validity)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making a key for CA %q: %w", commonName, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("signing CA %q: %w", commonName, err)
	}
	return encodePair(der, key)
}

// ParseCA reads a CA: the first certificate of CertPEM and its key, RSA (2048
// bits or more) or ECDSA, as PKCS#8, PKCS#1 or SEC 1.
func ParseCA(pair KeyPair) (*CA, error) {
	cert, err := parseCertificate(pair.CertPEM)
	if err != nil {
		return nil, fmt.Errorf("parsing CA certificate: %w", err)
	}
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return nil, fmt.Errorf("certificate %q is not a CA", cert.Subject.CommonName)
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("certificate %q may not sign certificates", cert.Subject.CommonName)
	}
	if err := checkPublicKey(cert.PublicKey); err != nil {
		return nil, fmt.Errorf("checking CA %q: %w", cert.Subject.CommonName, err)
	}
	signer, err := parseKey(pair.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("parsing key of CA %q: %w", cert.Subject.CommonName, err)
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("key does not belong to CA %q", cert.Subject.CommonName)
	}
	return &CA{
		cert:    cert,
		signer:  signer,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert.Raw}),
	}, nil
}

// CertPEM is the CA's certificate alone.
func (ca *CA) CertPEM() []byte { return append([]byte(nil), ca.certPEM...) }

// NotAfter is the end of the CA's life.
func (ca *CA) NotAfter() time.Time { return ca.cert.NotAfter }

// Issue makes a fresh ECDSA P-256 key and signs a certificate for it. CertPEM
// is the leaf alone.
func (ca *CA) Issue(leaf Leaf, now time.Time) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making a key for %q: %w", leaf.CommonName, err)
	}
	der, err := ca.sign(leaf, key.Public(), now)
	if err != nil {
		return KeyPair{}, err
	}
	return encodePair(der, key)
}

// SignRequest signs the public key of a CSR with the names and usages of leaf.
// Nothing else of the CSR is used.
func (ca *CA) SignRequest(csrPEM []byte, leaf Leaf, now time.Time) ([]byte, error) {
	request, err := decodeRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	der, err := ca.sign(leaf, request.PublicKey, now)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), nil
}

func (ca *CA) sign(leaf Leaf, public crypto.PublicKey, now time.Time) ([]byte, error) {
	switch {
	case leaf.CommonName == "":
		return nil, errors.New("signing a certificate: common name is empty")
	case !leaf.Server && !leaf.Client:
		return nil, fmt.Errorf("signing %q: neither server nor client usage", leaf.CommonName)
	case leaf.Validity <= 0:
		return nil, fmt.Errorf("signing %q: validity %s is not positive", leaf.CommonName, leaf.Validity)
	case !now.Before(ca.cert.NotAfter):
		return nil, fmt.Errorf("signing %q: CA %q expired at %s", leaf.CommonName, ca.cert.Subject.CommonName, ca.cert.NotAfter)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations, OrganizationalUnit: leaf.OrganizationalUnits},
		DNSNames:              leaf.DNSNames,
		IPAddresses:           leaf.IPs,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(leaf.Validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           leaf.usages(),
		BasicConstraintsValid: true,
	}
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.signer)
	if err != nil {
		return nil, fmt.Errorf("signing %q: %w", leaf.CommonName, err)
	}
	return der, nil
}

func (l Leaf) usages() []x509.ExtKeyUsage {
	var usages []x509.ExtKeyUsage
	if l.Server {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}

func encodePair(der []byte, key *ecdsa.PrivateKey) (KeyPair, error) {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return KeyPair{
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// parseCertificate reads the first certificate of data.
func parseCertificate(data []byte) (*x509.Certificate, error) {
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return nil, errors.New("no certificate in PEM")
		}
		if block.Type == certificateBlock {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// parseKey reads the first private key of data. Its errors never hold key
// material.
func parseKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return nil, errors.New("no private key in PEM")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default: // for example EC PARAMETERS, which openssl writes before a key
			continue
		}
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("a key of type %T cannot sign", key)
		}
		return signer, nil
	}
}
