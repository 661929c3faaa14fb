package fleetview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

const (
	// documentPath precedes a document's own.
	documentPath = "/openapi/v3/"
	// documentTime is how long an OpenAPI document may take once it has begun.
	documentTime = time.Minute
	// maxDocumentTries is how many members are asked for an OpenAPI document.
	maxDocumentTries = 3
)

// serveDocument answers /openapi/v3/<path> with the document of the newest member that has
// it, as it is. If that member does not answer, the next one is asked.
func (d *discovery) serveDocument(w http.ResponseWriter, r *http.Request, view View, known *resources) {
	documents, _ := d.documents(r.Context(), view, known)
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, documentPath), "/")
	doc := documents[path]
	if doc == nil {
		fault.Write(w, noDocument(view, path))
		return
	}
	var absent []*fault.Fault
	for _, member := range doc.members[:min(len(doc.members), maxDocumentTries)] {
		err := relayDocument(w, r, view, member, path, doc)
		if err == nil {
			return
		}
		absent = append(absent, fault.Of(member.Name(), err))
	}
	if r.Context().Err() == nil {
		fault.Write(w, noAnswer(view, absent))
	}
}

// relayDocument passes a member's document on. An error means that nothing was written.
func relayDocument(w http.ResponseWriter, r *http.Request, view View, member Member, path string, doc *document) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	timer := time.AfterFunc(view.Timeout, func() { cancel(fault.ErrTimeout) })
	defer timer.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, documentPath+path, nil)
	if err != nil {
		return fmt.Errorf("making a request for %q: %w", path, err)
	}
	// Without Accept-Encoding a transport would ask for gzip, and unpack it.
	request.Header.Set("Accept-Encoding", "identity")
	for _, name := range []string{"Accept", "Accept-Encoding", "If-None-Match"} {
		if values := r.Header.Values(name); len(values) > 0 {
			request.Header[name] = values
		}
	}
	response, err := member.RoundTrip(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusNotModified, http.StatusNotAcceptable:
	default:
		if err := unzip(response); err != nil {
			return fmt.Errorf("reading its answer: %w", err)
		}
		return fault.Read(member.Name(), response)
	}
	timer.Reset(documentTime)
	writeDocument(w, r, response, doc)
	return nil
}

// writeDocument passes an answer on. It may be kept for a year only if it has the content
// that the client asked for by hash: the member may have changed since.
func writeDocument(w http.ResponseWriter, r *http.Request, response *http.Response, doc *document) {
	header := w.Header()
	for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Length", "ETag", "Last-Modified"} {
		if value := response.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	header.Set("Vary", "Accept, Accept-Encoding")
	header.Set("Cache-Control", "no-cache, private")
	if doc.matches(r) && strings.TrimPrefix(response.Header.Get("ETag"), "W/") == doc.etag {
		header.Set("Cache-Control", "private, immutable")
		header.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(response.StatusCode)
	if r.Method == http.MethodHead {
		return
	}
	written, err := io.Copy(w, io.LimitReader(response.Body, maxDiscovery))
	if err == nil && written == maxDiscovery {
		if n, _ := response.Body.Read(make([]byte, 1)); n > 0 {
			err = errors.New("document too large")
		}
	}
	if err != nil {
		// The client must not take a part for the whole.
		panic(http.ErrAbortHandler)
	}
}
