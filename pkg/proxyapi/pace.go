package proxyapi

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// stalledAfter is how long a client may not read before what is kept for it counts.
const stalledAfter = time.Second

// pacedWriter counts a window of the answer for the user while the client does not
// read. A client that pauses is waited for as long as it likes, but one whose
// pauses together would take more memory than a user may have is cut off.
type pacedWriter struct {
	http.ResponseWriter
	scope   *requestScope
	answers *limiter
	metrics *metrics

	mu      sync.Mutex
	timer   *time.Timer // nil before the first write
	writing bool
	release func() // nil while the client reads
}

func newPacedWriter(w http.ResponseWriter, scope *requestScope, answers *limiter, m *metrics) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, scope: scope, answers: answers, metrics: m}
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) Write(p []byte) (int, error) {
	w.begin()
	defer w.end()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *pacedWriter) FlushError() error {
	w.begin()
	defer w.end()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *pacedWriter) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = true
	if w.timer == nil {
		w.timer = time.AfterFunc(stalledAfter, w.stalled)
		return
	}
	w.timer.Reset(stalledAfter)
}

// end says that the client reads, or that there is no more.
func (w *pacedWriter) end() {
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

func (w *pacedWriter) stalled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.writing {
		return
	}
	window := httprelay.Window
	if w.scope.inner != nil && w.scope.inner.Verb == "watch" {
		window = agentclient.WatchWindow
	}
	release, err := w.answers.acquire(w.scope.holder, w.scope.target.Cluster, window)
	if err == nil {
		w.release = release
		return
	}
	w.metrics.rejected.WithLabelValues("unread").Inc()
	klog.Background().Info("Cut an answer off that its client does not read", "user", w.scope.holder, "cluster", w.scope.target.Cluster, "reason", err.Error())
	// It ends the write that waits, and with it the request.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}
