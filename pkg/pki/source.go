package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
)

// pollInterval is how often a Source reads its files (package filewatch).
const pollInterval = time.Second

// sessionsPerSource bounds the client's resumable sessions, one per server name:
// the proxy API talks to an agent of each cluster, of which a hub has thousands.
// Each that is in use takes a few KiB.
const sessionsPerSource = 8192

var errNotLoaded = errors.New("certificates are not loaded")

// Files are the paths of a certificate (with intermediates, if any), its key
// and a bundle of CAs, all PEM. An empty path means none.
type Files struct {
	Cert, Key, CA string
	// CAData is a bundle in the place of the one in CA.
	CAData []byte
	// MoreCA is a second bundle, which may be absent.
	MoreCA string
	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile, which may be
	// absent or empty; see ParseTLSProfile.
	TLSProfile string
}

// contents are those of Files; of a file that may be absent nil.
type contents struct{ cert, key, ca, moreCA, minVersion, cipherSuites []byte }

func (f Files) read() (c contents, err error) {
	profile := func(key string) string {
		if f.TLSProfile == "" {
			return ""
		}
		return filepath.Join(f.TLSProfile, key)
	}
	for _, file := range []struct {
		path     string
		content  *[]byte
		optional bool
	}{
		{f.Cert, &c.cert, false}, {f.Key, &c.key, false}, {f.CA, &c.ca, false}, {f.MoreCA, &c.moreCA, true},
		{profile(profileMinVersion), &c.minVersion, true}, {profile(profileCipherSuites), &c.cipherSuites, true},
	} {
		if file.path == "" {
			continue
		}
		if *file.content, err = os.ReadFile(file.path); err != nil && !(file.optional && errors.Is(err, fs.ErrNotExist)) {
			return c, fmt.Errorf("loading certificates: %w", err)
		}
	}
	if f.CA == "" {
		c.ca = f.CAData
	}
	return c, nil
}

func (c contents) equal(other contents) bool {
	return bytes.Equal(c.cert, other.cert) && bytes.Equal(c.key, other.key) && bytes.Equal(c.ca, other.ca) &&
		bytes.Equal(c.moreCA, other.moreCA) && bytes.Equal(c.minVersion, other.minVersion) && bytes.Equal(c.cipherSuites, other.cipherSuites)
}

// Source hands out TLS configurations made from Files and reloads them. Set
// TLS and Changed before the first use; methods are safe for concurrent use.
type Source struct {
	// TLS narrows or widens protocol versions and cipher suites. What is set
	// here goes before the profile of Files.TLSProfile.
	TLS TLSParameters
	// Changed is called by Run after each reload that brought something else. It
	// must not block.
	Changed func()

	files   Files
	current atomic.Pointer[generation]
}

// generation is one state of the files.
type generation struct {
	raw         contents
	tls         TLSParameters
	certificate *tls.Certificate // nil without Files.Cert
	pool        *x509.CertPool   // nil without any CA
	sessions    tls.ClientSessionCache
	ticketKey   [32]byte
	rechecked   rechecked
	// profileError says why the TLS profile is not the one in use.
	profileError error
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
	if err := s.current.Load().profileError; err != nil {
		logger.Error(err, "Using the defaults for TLS, mend ConfigMap ocm-tls-profile")
	}
	return filewatch.Loop{
		Interval: pollInterval,
		Load:     s.reload,
		Changed: func() {
			logger.Info("Certificates and TLS profile reloaded", "notAfter", s.notAfter(), "minTLSVersion", tls.VersionName(s.minVersion()))
			if s.Changed != nil {
				s.Changed()
			}
		},
		Failed: func(err error) {
			logger.Error(err, "Keeping what is in use, the changed certificates or TLS profile cannot be loaded")
		},
	}.Run(ctx)
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

// CommonName is that of the certificate in use; empty without one.
func (s *Source) CommonName() string {
	generation := s.current.Load()
	if generation == nil || generation.certificate == nil {
		return ""
	}
	return generation.certificate.Leaf.Subject.CommonName
}

func (s *Source) notAfter() time.Time {
	generation := s.current.Load()
	if generation == nil || generation.certificate == nil {
		return time.Time{}
	}
	return generation.certificate.Leaf.NotAfter
}

func (s *Source) minVersion() uint16 {
	return s.current.Load().tls.apply(&tls.Config{}).MinVersion
}

func (s *Source) reload() (changed bool, err error) {
	next := &generation{}
	if next.raw, err = s.files.read(); err != nil {
		return false, err
	}
	last := s.current.Load()
	if last != nil && last.raw.equal(next.raw) {
		return false, nil
	}
	if s.files.Cert != "" {
		pair, err := tls.X509KeyPair(next.raw.cert, next.raw.key)
		if err != nil {
			return false, fmt.Errorf("loading certificate %q with key %q: %w", s.files.Cert, s.files.Key, err)
		}
		next.certificate = &pair
	}
	if len(next.raw.ca) > 0 || len(next.raw.moreCA) > 0 || s.files.CA != "" {
		if next.pool, err = parsePool(slices.Concat(next.raw.ca, []byte("\n"), next.raw.moreCA)); err != nil {
			return false, fmt.Errorf("loading CA bundle %q: %w", s.files.CA, err)
		}
	}
	if next.tls, err = s.parameters(next.raw.minVersion, next.raw.cipherSuites); err != nil && last != nil {
		return false, err
	}
	// A process that has just started has no good profile to keep: it begins
	// with the defaults, which are stricter than any profile, and Run says so.
	next.profileError = err
	next.sessions = tls.NewLRUClientSessionCache(sessionsPerSource)
	fillRandom(next.ticketKey[:])
	s.current.Store(next)
	return true, nil
}

// parameters are those that are set, and the profile's where none are.
func (s *Source) parameters(minVersion, cipherSuites []byte) (TLSParameters, error) {
	profile, err := ParseTLSProfile(string(minVersion), string(cipherSuites))
	if err != nil {
		return s.TLS, fmt.Errorf("reading the TLS profile in %q: %w", s.files.TLSProfile, err)
	}
	if s.TLS.MinVersion != 0 {
		profile.MinVersion = s.TLS.MinVersion
	}
	if len(s.TLS.CipherSuites) > 0 {
		profile.CipherSuites = s.TLS.CipherSuites
	}
	return profile, nil
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
