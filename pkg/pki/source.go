package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// pollInterval is how often a Source reads its files. A kubelet takes about a
// minute to project a changed Secret, so this adds nothing that matters.
const pollInterval = 3 * time.Second

// sessionsPerSource bounds the client's resumable sessions: one per server
// name, and a process talks to a handful.
const sessionsPerSource = 64

var errNotLoaded = errors.New("certificates are not loaded")

// Files are the paths of a certificate (with intermediates, if any), its key
// and a bundle of CAs, all PEM. An empty path means none.
type Files struct{ Cert, Key, CA string }

// Source hands out TLS configurations made from Files and reloads them. Set
// TLS before the first use; methods are safe for concurrent use.
type Source struct {
	// TLS narrows or widens protocol versions and cipher suites.
	TLS TLSParameters

	files   Files
	current atomic.Pointer[generation]
}

// generation is one state of the files.
type generation struct {
	raw         [3][]byte
	certificate *tls.Certificate // nil without Files.Cert
	pool        *x509.CertPool   // nil without Files.CA
	sessions    tls.ClientSessionCache
	ticketKey   [32]byte
}

// NewSource does not touch the files; Load or Run does.
func NewSource(files Files) *Source { return &Source{files: files} }

// Load reads the files now. On an error, which names the file, the state
// before stays in use.
func (s *Source) Load() error {
	_, err := s.reload()
	return err
}

// Run loads the files, then reloads them when their content changes, until ctx
// is done. It returns an error only if the first load fails.
func (s *Source) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("certificate", s.files.Cert, "ca", s.files.CA)
	if s.current.Load() == nil {
		if err := s.Load(); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	lastError := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		changed, err := s.reload()
		switch {
		case err != nil && err.Error() != lastError:
			logger.Error(err, "Keeping the certificates in use, the changed ones cannot be loaded")
			lastError = err.Error()
		case err == nil:
			lastError = ""
		}
		if changed {
			logger.Info("Certificates reloaded", "notAfter", s.notAfter())
		}
	}
}

// Check reports whether there is a certificate to present that is valid now,
// for readiness probes.
func (s *Source) Check() error {
	if s.current.Load() == nil {
		return errNotLoaded
	}
	if end := s.notAfter(); !end.IsZero() && time.Now().After(end) {
		return fmt.Errorf("certificate %q expired at %s", s.files.Cert, end.UTC().Format(time.RFC3339))
	}
	return nil
}

func (s *Source) notAfter() time.Time {
	generation := s.current.Load()
	if generation == nil || generation.certificate == nil {
		return time.Time{}
	}
	return generation.certificate.Leaf.NotAfter
}

func (s *Source) reload() (changed bool, err error) {
	next := &generation{}
	for i, path := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if path == "" {
			continue
		}
		if next.raw[i], err = os.ReadFile(path); err != nil {
			return false, fmt.Errorf("loading certificates: %w", err)
		}
	}
	if last := s.current.Load(); last != nil && sameContent(last.raw, next.raw) {
		return false, nil
	}
	if s.files.Cert != "" {
		pair, err := tls.X509KeyPair(next.raw[0], next.raw[1])
		if err != nil {
			return false, fmt.Errorf("loading certificate %q with key %q: %w", s.files.Cert, s.files.Key, err)
		}
		next.certificate = &pair
	}
	if s.files.CA != "" {
		if next.pool, err = parsePool(next.raw[2]); err != nil {
			return false, fmt.Errorf("loading CA bundle %q: %w", s.files.CA, err)
		}
	}
	next.sessions = tls.NewLRUClientSessionCache(sessionsPerSource)
	fillRandom(next.ticketKey[:])
	s.current.Store(next)
	return true, nil
}

func sameContent(a, b [3][]byte) bool {
	return bytes.Equal(a[0], b[0]) && bytes.Equal(a[1], b[1]) && bytes.Equal(a[2], b[2])
}

// parsePool is strict, unlike x509.CertPool.AppendCertsFromPEM: a bundle of
// which a part is garbage is a mistake to be told, not a smaller bundle.
func parsePool(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	count := 0
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != certificateBlock {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		count++
	}
	if count == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return pool, nil
}
