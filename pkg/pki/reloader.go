package pki

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// pollInterval is how often a Reloader looks at its files (package filewatch). A kubelet
// takes a minute to bring a change; looks are half of what an idle agent does.
const pollInterval = 3 * time.Second

// sessionsPerReloader bounds the client's resumable sessions, one per server name:
// the proxy API talks to an agent of each cluster, of which a hub has thousands.
// Each that is in use takes a few KiB.
const sessionsPerReloader = 8192

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
	// absent or empty; see parseTLSProfile.
	TLSProfile string
}

// contents are those of Files; of a file that may be absent nil.
type contents struct{ cert, key, ca, moreCA, minVersion, cipherSuites []byte }

// profile is the path of a key of the TLS profile.
func (f Files) profile(key string) string {
	if f.TLSProfile == "" {
		return ""
	}
	return filepath.Join(f.TLSProfile, key)
}

// paths are those of all files.
func (f Files) paths() []string {
	all := []string{f.Cert, f.Key, f.CA, f.MoreCA, f.profile(profileMinVersion), f.profile(profileCipherSuites)}
	return slices.DeleteFunc(all, func(path string) bool { return path == "" })
}

func (f Files) read() (c contents, err error) {
	for _, file := range []struct {
		path     string
		content  *[]byte
		optional bool
	}{
		{f.Cert, &c.cert, false}, {f.Key, &c.key, false}, {f.CA, &c.ca, false}, {f.MoreCA, &c.moreCA, true},
		{f.profile(profileMinVersion), &c.minVersion, true}, {f.profile(profileCipherSuites), &c.cipherSuites, true},
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

// Reloader hands out TLS configurations made from Files and reloads them. Set
// TLS and Changed before the first use; methods are safe for concurrent use.
type Reloader struct {
	// TLS narrows or widens protocol versions and cipher suites. They take precedence over
	// the profile of Files.TLSProfile.
	TLS TLSParameters
	// Changed is called by Run after each reload that brought something else. It
	// must not block.
	Changed func()

	files   Files
	loading sync.Mutex // what was read first is stored first
	current atomic.Pointer[snapshot]
}

// snapshot is what the files held at one time.
type snapshot struct {
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

// NewReloader does not touch the files; Load or Run does.
func NewReloader(files Files) *Reloader { return &Reloader{files: files} }

// Load reads the files now. After an error, which names the file, the previous state
// stays in use.
func (r *Reloader) Load() error {
	_, err := r.reload()
	return err
}

// Run loads the files, then reloads them when their content changes, until ctx
// is done. It returns an error only if the first load fails.
func (r *Reloader) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("certificate", r.files.Cert, "ca", r.files.CA)
	if r.current.Load() == nil {
		if err := r.Load(); err != nil {
			return err
		}
	}
	if err := r.current.Load().profileError; err != nil {
		logger.Error(err, "Using the defaults for TLS until ConfigMap ocm-tls-profile is corrected")
	}
	return filewatch.Loop{
		Interval: pollInterval,
		Paths:    r.files.paths(),
		Load:     r.reload,
		Changed: func() {
			logger.Info("Certificates and TLS profile reloaded", "notAfter", r.notAfter(), "minTLSVersion", tls.VersionName(r.minVersion()))
			if r.Changed != nil {
				r.Changed()
			}
		},
		Failed: func(err error) {
			logger.Error(err, "Keeping the certificates and TLS profile in use: the changed ones cannot be loaded")
		},
	}.Run(ctx)
}

// Check reports whether there is a certificate to present that is valid now,
// for readiness probes.
func (r *Reloader) Check() error {
	if r.current.Load() == nil {
		return errNotLoaded
	}
	if end := r.notAfter(); !end.IsZero() && time.Now().After(end) {
		return fmt.Errorf("certificate %q expired at %s", r.files.Cert, end.UTC().Format(time.RFC3339))
	}
	return nil
}

// CommonName is that of the certificate in use; empty without one.
func (r *Reloader) CommonName() string {
	snapshot := r.current.Load()
	if snapshot == nil || snapshot.certificate == nil {
		return ""
	}
	return snapshot.certificate.Leaf.Subject.CommonName
}

func (r *Reloader) notAfter() time.Time {
	snapshot := r.current.Load()
	if snapshot == nil || snapshot.certificate == nil {
		return time.Time{}
	}
	return snapshot.certificate.Leaf.NotAfter
}

func (r *Reloader) minVersion() uint16 {
	return r.current.Load().tls.apply(&tls.Config{}).MinVersion
}

func (r *Reloader) reload() (changed bool, err error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	next := &snapshot{}
	if next.raw, err = r.files.read(); err != nil {
		return false, err
	}
	last := r.current.Load()
	if last != nil && last.raw.equal(next.raw) {
		return false, nil
	}
	if r.files.Cert != "" {
		pair, err := tls.X509KeyPair(next.raw.cert, next.raw.key)
		if err != nil {
			return false, fmt.Errorf("loading certificate %q with key %q: %w", r.files.Cert, r.files.Key, err)
		}
		next.certificate = &pair
	}
	if len(next.raw.ca) > 0 || len(next.raw.moreCA) > 0 || r.files.CA != "" {
		if next.pool, err = parsePool(slices.Concat(next.raw.ca, []byte("\n"), next.raw.moreCA)); err != nil {
			return false, fmt.Errorf("loading CA bundle %q: %w", r.files.CA, err)
		}
	}
	if next.tls, err = r.parameters(next.raw.minVersion, next.raw.cipherSuites); err != nil && last != nil {
		return false, err
	}
	// A process that has just started has no good profile to keep: it begins
	// with the defaults, which are stricter than any profile, and Run says so.
	next.profileError = err
	next.sessions = tls.NewLRUClientSessionCache(sessionsPerReloader)
	fillRandom(next.ticketKey[:])
	r.current.Store(next)
	return true, nil
}

// parameters are those that are set, and the profile's where none are.
func (r *Reloader) parameters(minVersion, cipherSuites []byte) (TLSParameters, error) {
	profile, err := parseTLSProfile(string(minVersion), string(cipherSuites))
	if err != nil {
		return r.TLS, fmt.Errorf("reading the TLS profile in %q: %w", r.files.TLSProfile, err)
	}
	if r.TLS.MinVersion != 0 {
		profile.MinVersion = r.TLS.MinVersion
	}
	if len(r.TLS.CipherSuites) > 0 {
		profile.CipherSuites = r.TLS.CipherSuites
	}
	return profile, nil
}

// parsePool is strict, unlike x509.CertPool.AppendCertsFromPEM: a bundle with garbage
// in it is an error, not a smaller bundle.
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

// fillRandom cannot fail: crypto/rand ends the process if the system has no
// randomness.
func fillRandom(b []byte) { _, _ = rand.Read(b) }

// Errors of Recheck.
var (
	ErrExpired   = errors.New("the peer's certificate has expired")
	errUntrusted = errors.New("the CA of the peer's certificate is not trusted any more")
)

// CheckRole returns an error unless the other end has the role, with a certificate that a new handshake
// would accept. A nil state is that of a connection without TLS. It may be called within a handshake that is not
// complete for crypto/tls: the chain is verified by then.
func (r *Reloader) CheckRole(state *tls.ConnectionState, want identity.Role) error {
	if state == nil {
		return errors.New("it does not speak TLS")
	}
	done := *state
	done.HandshakeComplete = true
	role, err := PeerRole(done)
	if err != nil {
		return err
	}
	if role != want {
		return fmt.Errorf("role %q is not %q", role, want)
	}
	certificate, err := PeerCertificate(done)
	if err != nil {
		return err
	}
	return r.Recheck(certificate, time.Now())
}

// Recheck returns nil while, at the time now, a peer's certificate would be accepted in a new
// handshake, and ErrExpired or errUntrusted afterwards. A CA that left the bundle
// shows at the next reload. It is cheap: a certificate is verified once for each
// state of the files.
func (r *Reloader) Recheck(c *Certificate, now time.Time) error {
	if now.After(c.leaf.NotAfter) {
		return ErrExpired
	}
	snapshot := r.current.Load()
	if snapshot == nil {
		return nil
	}
	if now.After(snapshot.rechecked.until(c, snapshot.pool, now)) {
		return errUntrusted
	}
	return nil
}
