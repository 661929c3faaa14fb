package proxyagent

import (
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// sayAgain is the pause between two logs of a handshake that keeps failing for the same
// reason.
const sayAgain = 30 * time.Second

// handshakes remembers why the handshake with a proxy server failed, for the
// log, the readiness probe and a metric. konnectivity's agent only says that it
// could not connect.
type handshakes struct {
	failures *prometheus.CounterVec

	mu     sync.Mutex
	last   error // nil after one that succeeded
	reason string
	said   time.Time
}

func (h *handshakes) failed(err error) {
	reason := pki.HandshakeReason(err)
	h.failures.WithLabelValues(reason).Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = pki.Explain(err)
	if reason == h.reason && time.Since(h.said) < sayAgain {
		return
	}
	h.reason, h.said = reason, time.Now()
	klog.Background().Info("TLS with the proxy server failed", "reason", reason, "err", h.last.Error())
}

func (h *handshakes) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.reason = nil, ""
}

func (h *handshakes) lastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// watchedConn looks at the first read after a handshake: in TLS 1.3 that is
// where a client learns that its certificate was refused.
type watchedConn struct {
	net.Conn
	handshakes *handshakes
	once       sync.Once
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.once.Do(func() { c.handshakes.firstRead(err) })
	return n, err
}

func (h *handshakes) firstRead(err error) {
	switch reason := pki.HandshakeReason(err); {
	case err == nil:
		h.succeeded()
	case reason != pki.ReasonClosed && reason != pki.ReasonOther:
		h.failed(err)
	}
}
