package httprelay

import (
	"net/http"
	"strconv"
)

// EndTogether gives a ReverseProxy that flushes at once (FlushInterval -1) a
// writer that does not flush when the body is complete: what is left goes out
// with the end, when the handler returns. Only answers that say how long they
// are have such a moment.
func EndTogether(w http.ResponseWriter) http.ResponseWriter {
	return &endWriter{ResponseWriter: w, left: -1}
}

type endWriter struct {
	http.ResponseWriter
	left int64 // of the body; -1 if nobody knows
}

// Unwrap is for http.ResponseController.
func (w *endWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *endWriter) WriteHeader(code int) {
	if code >= 200 {
		if n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64); err == nil {
			w.left = n
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *endWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if w.left >= 0 {
		w.left = max(w.left-int64(n), 0)
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (w *endWriter) FlushError() error {
	if w.left == 0 {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
