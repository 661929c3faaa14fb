package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"
)

// Certificate is one that a peer showed and that was verified then.
type Certificate struct {
	leaf          *x509.Certificate
	intermediates []*x509.Certificate
	id            [sha256.Size]byte
}

// PeerCertificate returns the verified certificate of a connection's peer.
func PeerCertificate(state tls.ConnectionState) (*Certificate, error) {
	leaf, err := peerLeaf(state)
	if err != nil {
		return nil, err
	}
	c := &Certificate{leaf: leaf, id: sha256.Sum256(leaf.Raw)}
	if len(state.PeerCertificates) > 1 {
		c.intermediates = state.PeerCertificates[1:]
	}
	return c, nil
}

// NewerThan reports whether c was issued after other.
func (c *Certificate) NewerThan(other *Certificate) bool {
	return c.leaf.NotBefore.After(other.leaf.NotBefore)
}

// rechecked remembers until when certificates are valid by the CAs of one state of
// the files.
type rechecked struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time
}

// maxRechecked bounds what is remembered. The agents of a hub are fewer.
const maxRechecked = 1 << 16

// until is zero if no CA of pool signed c.
func (r *rechecked) until(c *Certificate, pool *x509.CertPool, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.known[c.id]; ok {
		return until
	}
	if r.known == nil || len(r.known) >= maxRechecked {
		r.known = map[[sha256.Size]byte]time.Time{}
	}
	until := verifiedUntil(c, pool, now)
	r.known[c.id] = until
	return until
}

func verifiedUntil(c *Certificate, pool *x509.CertPool, now time.Time) (until time.Time) {
	if pool == nil {
		return time.Time{}
	}
	options := x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, intermediate := range c.intermediates {
		options.Intermediates.AddCert(intermediate)
	}
	chains, err := c.leaf.Verify(options)
	if err != nil {
		return time.Time{}
	}
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, link := range chain[1:] {
			if link.NotAfter.Before(end) {
				end = link.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	return until
}
