package proxyagent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// logAgain is the pause between two logs of a handshake that keeps failing for the same
// reason.
const logAgain = 30 * time.Second

// handshakes remembers why the handshake with a proxy server failed, for the
// log, the readiness probe and a metric.
type handshakes struct {
	failures *prometheus.CounterVec

	mu     sync.Mutex
	last   error // nil after one that succeeded
	reason string
	logged time.Time
}

func (h *handshakes) noteFailure(err error) {
	reason := pki.HandshakeReason(err)
	h.failures.WithLabelValues(reason).Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = pki.Explain(err)
	if reason == h.reason && time.Since(h.logged) < logAgain {
		return
	}
	h.reason, h.logged = reason, time.Now()
	klog.Background().Error(h.last, "TLS with the proxy server failed", "reason", reason)
}

func (h *handshakes) noteSuccess() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.reason = nil, ""
}

func (h *handshakes) lastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// noteFirstRead notes how the first read after a handshake ended: in TLS 1.3 that is
// where a client learns that its certificate was refused.
func (h *handshakes) noteFirstRead(err error) {
	switch reason := pki.HandshakeReason(err); {
	case err == nil:
		h.noteSuccess()
	case reason != pki.ReasonClosed && reason != pki.ReasonOther:
		h.noteFailure(err)
	}
}

const (
	// ownCertificateWait is how long an agent waits for a certificate of its own, and
	// ownCertificateCheck how often it looks.
	ownCertificateWait  = 3 * time.Second
	ownCertificateCheck = 250 * time.Millisecond
)

// waitForOwnCertificate waits until the certificate is one of this release's for the
// cluster. Upstream keeps its own in the same Secret, which is the same for all
// clusters and is accepted nowhere: an agent that takes over from upstream's may start
// before OCM has replaced it. The error ends the process on purpose. Kubelets write a
// Secret that has changed to the files of a pod that goes on a minute later, and to
// those of one whose container starts again at once.
func waitForOwnCertificate(ctx context.Context, source *pki.Reloader, cluster string) error {
	if cluster == "" {
		return nil // a plain agent
	}
	ctx, cancel := context.WithTimeout(ctx, ownCertificateWait)
	defer cancel()
	for {
		name := source.CommonName()
		if name == identity.AgentCommonName(cluster) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("checking the agent's certificate: its common name is %q, want %q: it is of an earlier release, and OCM has not replaced it yet; restarting to read the new one", name, identity.AgentCommonName(cluster))
		case <-time.After(ownCertificateCheck):
		}
		if err := source.Load(); err != nil {
			return err
		}
	}
}
