package relay

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// StalledAfter is how long a client may not read before what is kept for it counts.
const StalledAfter = time.Second

// PacedWriter counts a window of the answer for the user while the client does not
// read. A client that pauses is waited for as long as it likes, but one whose
// pauses together would take more memory than a user may have is cut off.
type PacedWriter struct {
	http.ResponseWriter
	scope   *scope.Scope
	answers *scope.Limiter
	metrics *metrics.Metrics

	mu      sync.Mutex
	timer   *time.Timer // nil before the first write
	writing bool
	release func() // nil while the client reads
}

// NewPacedWriter returns a writer for the answer to a request.
func NewPacedWriter(w http.ResponseWriter, rs *scope.Scope, answers *scope.Limiter, m *metrics.Metrics) *PacedWriter {
	return &PacedWriter{ResponseWriter: w, scope: rs, answers: answers, metrics: m}
}

// Unwrap is for http.ResponseController.
func (w *PacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *PacedWriter) Write(p []byte) (int, error) {
	w.begin()
	defer w.End()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *PacedWriter) FlushError() error {
	w.begin()
	defer w.End()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *PacedWriter) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = true
	if w.timer == nil {
		w.timer = time.AfterFunc(StalledAfter, w.stalled)
		return
	}
	w.timer.Reset(StalledAfter)
}

// End says that the client reads, or that there is no more.
func (w *PacedWriter) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

func (w *PacedWriter) stalled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.writing {
		return
	}
	window := httprelay.Window
	if w.scope.Inner != nil && w.scope.Inner.Verb == "watch" {
		window = agentclient.WatchWindow
	}
	release, err := w.answers.Acquire(w.scope.Holder, w.scope.Target.Cluster, window)
	if err == nil {
		w.release = release
		return
	}
	w.metrics.Rejected.WithLabelValues("unread").Inc()
	klog.Background().Info("Cut an answer off that its client does not read", "user", w.scope.Holder, "cluster", w.scope.Target.Cluster, "reason", err.Error())
	// It ends the write that waits, and with it the request.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}
