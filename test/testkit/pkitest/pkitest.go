// Package pkitest makes certificates for tests, of the kind that the processes
// read: by pki's own CA, in files, good for an hour.
package pkitest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const validity = time.Hour

// NewCA makes a CA.
func NewCA(t testing.TB, name string) *pki.CA {
	t.Helper()
	pair, err := pki.NewCA(name, time.Now(), validity)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// Files are PREFIX.crt, PREFIX.key and PREFIX-ca.crt.
func Files(prefix string) pki.Files {
	return pki.Files{Cert: prefix + ".crt", Key: prefix + ".key", CA: prefix + "-ca.crt"}
}

// Issue writes a certificate of ca, and the CA that its holder trusts, to
// Files(prefix).
func Issue(t testing.TB, prefix string, ca *pki.CA, leaf pki.Leaf, trusted *pki.CA) pki.Files {
	t.Helper()
	leaf.Validity = validity
	pair, err := ca.Issue(leaf, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files := Files(prefix)
	for path, data := range map[string][]byte{files.Cert: pair.CertPEM, files.Key: pair.KeyPEM, files.CA: trusted.CertPEM()} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Load reads files.
func Load(t testing.TB, files pki.Files) *pki.Reloader {
	t.Helper()
	source := pki.NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	return source
}

// NewReloader returns a certificate of ca, and the CA that its holder trusts, from
// files that the caller does not need.
func NewReloader(t testing.TB, ca *pki.CA, leaf pki.Leaf, trusted *pki.CA) *pki.Reloader {
	t.Helper()
	return Load(t, Issue(t, filepath.Join(t.TempDir(), "tls"), ca, leaf, trusted))
}
