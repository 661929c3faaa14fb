package httprelay

import (
	"net/http"
	"strconv"
)

// NoFinalFlush returns a writer for a ReverseProxy that flushes at once (FlushInterval
// -1). It does not flush when the body is complete: what is left goes out with the
// end, when the handler returns. Only answers with a Content-Length have such a
// moment.
func NoFinalFlush(w http.ResponseWriter) http.ResponseWriter {
	return &finalFlushWriter{ResponseWriter: w, left: -1}
}

type finalFlushWriter struct {
	http.ResponseWriter
	left int64 // of the body; -1 if unknown
}

// Unwrap is for http.ResponseController.
func (w *finalFlushWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *finalFlushWriter) WriteHeader(code int) {
	if code >= 200 {
		if n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64); err == nil {
			w.left = n
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *finalFlushWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if w.left >= 0 {
		w.left = max(w.left-int64(n), 0)
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (w *finalFlushWriter) FlushError() error {
	if w.left == 0 {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
