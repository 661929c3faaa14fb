package pki

import (
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"time"
)

// RenewalReason says why the first certificate of certPEM should be issued
// again, or "" if it is still good: it is want's, issuer signed it, and more
// than a third of its life is left, or it ends with issuer: a new one would too.
// Order and repetition of names do not matter.
func RenewalReason(certPEM []byte, issuer *CA, want Leaf, now time.Time) string {
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return "the certificate cannot be read: " + err.Error()
	}
	if err := cert.CheckSignatureFrom(issuer.cert); err != nil {
		return fmt.Sprintf("it is not signed by the current CA %q", issuer.cert.Subject.CommonName)
	}
	switch {
	case cert.Subject.CommonName != want.CommonName:
		return fmt.Sprintf("its common name is %q, not %q", cert.Subject.CommonName, want.CommonName)
	case !sameSet(cert.Subject.Organization, want.Organizations):
		return fmt.Sprintf("its organizations are %q, not %q", cert.Subject.Organization, want.Organizations)
	case !sameSet(cert.Subject.OrganizationalUnit, want.OrganizationalUnits):
		return fmt.Sprintf("its organizational units are %q, not %q", cert.Subject.OrganizationalUnit, want.OrganizationalUnits)
	case !sameSet(cert.DNSNames, want.DNSNames):
		return fmt.Sprintf("its DNS names are %q, not %q", cert.DNSNames, want.DNSNames)
	case !sameSet(addresses(cert.IPAddresses), addresses(want.IPs)):
		return fmt.Sprintf("its IP addresses are %q, not %q", addresses(cert.IPAddresses), addresses(want.IPs))
	case hasUsage(cert, x509.ExtKeyUsageServerAuth) != want.Server, hasUsage(cert, x509.ExtKeyUsageClientAuth) != want.Client:
		return "its key usages differ"
	}
	life := cert.NotAfter.Sub(cert.NotBefore)
	if left := cert.NotAfter.Sub(now); left <= life/3 && (left <= 0 || cert.NotAfter.Before(issuer.cert.NotAfter)) {
		return fmt.Sprintf("it expires at %s", cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return ""
}

// NotAfter is when the first certificate of certPEM expires.
func NotAfter(certPEM []byte) (time.Time, error) {
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return time.Time{}, fmt.Errorf("parsing certificate: %w", err)
	}
	return cert.NotAfter, nil
}

func hasUsage(cert *x509.Certificate, usage x509.ExtKeyUsage) bool {
	return slices.Contains(cert.ExtKeyUsage, usage)
}

func addresses(ips []net.IP) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = ip.String()
	}
	return out
}

func sameSet(a, b []string) bool {
	sorted := func(in []string) []string {
		out := slices.Clone(in)
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(sorted(a), sorted(b))
}
