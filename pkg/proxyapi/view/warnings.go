package view

import (
	"net/http"
	"slices"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// fallbacks are what Warnings say when clusters were asked because the index could not be.
const (
	noIndex       = "the view is to read from the fleet index, and the proxy API has none (--fleet-index): clusters were asked themselves"
	indexSilent   = "the fleet index did not answer: clusters were asked themselves"
	indexTooLarge = "the fleet index's answer is too large to be kept: clusters were asked themselves"
)

// warnings are those of an answer whose header is not sent yet. They are safe for concurrent use.
type warnings struct {
	mu       sync.Mutex
	all      []string
	clusters map[string]string
}

// once adds a Warning, if it is not there.
func (w *warnings) once(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.all, text) {
		w.all = append(w.all, text)
	}
}

// of adds one of a cluster.
func (w *warnings) of(cluster, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clusters == nil {
		w.clusters = map[string]string{}
	}
	w.clusters[cluster] = text
}

func (w *warnings) addTo(header http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.all {
		fault.AddWarning(header, text)
	}
	fault.WarnOfEach(header, w.clusters, "their objects are as of when they were last heard, or incomplete")
}

// warningWriter adds Warnings to the header when that is sent.
type warningWriter struct {
	http.ResponseWriter
	warnings *warnings
	begun    bool
}

// Unwrap is for http.ResponseController.
func (w *warningWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *warningWriter) WriteHeader(code int) {
	if !w.begun {
		w.begun = true
		w.warnings.addTo(w.Header())
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *warningWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
