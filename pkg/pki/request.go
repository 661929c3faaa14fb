package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
)

const (
	requestBlock = "CERTIFICATE REQUEST"
	minRSABits   = 2048
)

// Request is everything that a CSR asks for. An approver compares all
// of it: a field that it does not know must be empty.
type Request struct {
	CommonName    string
	Organizations []string
	// OrganizationalUnits are the OU values.
	OrganizationalUnits []string
	// OtherSubject are subject attributes besides one CN and any number of O and
	// OU, as "oid=value".
	OtherSubject []string
	DNSNames     []string
	// OtherSANs are subject alternative names of every other kind, as
	// "ip:…", "email:…", "uri:…" or "tag:<number>".
	OtherSANs []string
	// OtherExtensions are the object identifiers of requested extensions
	// besides subject alternative names.
	OtherExtensions []string
}

var (
	oidCommonName         = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization       = asn1.ObjectIdentifier{2, 5, 4, 10}
	oidOrganizationalUnit = asn1.ObjectIdentifier{2, 5, 4, 11}
	oidSubjectAlt         = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// ParseRequest reads a CSR. It refuses keys that are too weak and requests
// that their key did not sign.
func ParseRequest(csrPEM []byte) (Request, error) {
	csr, err := decodeRequest(csrPEM)
	if err != nil {
		return Request{}, err
	}
	request := Request{
		Organizations:       csr.Subject.Organization,
		OrganizationalUnits: csr.Subject.OrganizationalUnit,
		DNSNames:            csr.DNSNames,
	}
	for _, attribute := range csr.Subject.Names {
		switch {
		case attribute.Type.Equal(oidCommonName) && request.CommonName == "":
			request.CommonName = fmt.Sprint(attribute.Value)
		case attribute.Type.Equal(oidOrganization), attribute.Type.Equal(oidOrganizationalUnit):
		default:
			request.OtherSubject = append(request.OtherSubject, fmt.Sprintf("%s=%v", attribute.Type, attribute.Value))
		}
	}
	for _, extension := range csr.Extensions {
		if !extension.Id.Equal(oidSubjectAlt) {
			request.OtherExtensions = append(request.OtherExtensions, extension.Id.String())
			continue
		}
		others, err := otherNames(extension.Value)
		if err != nil {
			return Request{}, err
		}
		request.OtherSANs = append(request.OtherSANs, others...)
	}
	return request, nil
}

// otherNames lists the general names (RFC 5280, 4.2.1.6) that are no DNS names.
// crypto/x509 silently drops the kinds that it does not know.
func otherNames(der []byte) ([]string, error) {
	var sequence asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &sequence); err != nil || len(rest) != 0 || sequence.Tag != asn1.TagSequence {
		return nil, errors.New("parsing subject alternative names: not a sequence")
	}
	var others []string
	for rest := sequence.Bytes; len(rest) > 0; {
		var name asn1.RawValue
		var err error
		if rest, err = asn1.Unmarshal(rest, &name); err != nil {
			return nil, fmt.Errorf("parsing subject alternative names: %w", err)
		}
		switch name.Tag {
		case 1:
			others = append(others, "email:"+string(name.Bytes))
		case 2:
		case 6:
			others = append(others, "uri:"+string(name.Bytes))
		case 7:
			others = append(others, "ip:"+net.IP(name.Bytes).String())
		default:
			others = append(others, fmt.Sprintf("tag:%d", name.Tag))
		}
	}
	return others, nil
}

func decodeRequest(csrPEM []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csrPEM)
	if block == nil || block.Type != requestBlock {
		return nil, errors.New("parsing certificate request: no " + requestBlock + " in PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate request: %w", err)
	}
	// The strength is checked first: verifying with a huge or odd key is not free.
	if err := checkPublicKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("checking certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("checking the signature of a certificate request: %w", err)
	}
	return csr, nil
}

func checkPublicKey(key any) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits {
			return fmt.Errorf("RSA key of %d bits is too weak, %d is the least", bits, minRSABits)
		}
		return nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("curve %q is not one of P-256, P-384 and P-521", key.Params().Name)
	case ed25519.PublicKey:
		return nil
	default:
		return fmt.Errorf("public key of type %T is not accepted", key)
	}
}
