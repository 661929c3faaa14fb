package fleetview

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// get answers a request for one object.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, q *request.Request) error {
	accepted, err := request.Forms(r)
	if err != nil {
		return err
	}
	if wanted, err := version.Parse(q.Query.Get("resourceVersion")); err == nil {
		// No member knows it. The newest is not older, as in a list.
		h.clock.Follow(wanted.Time)
		q.Query.Del("resourceVersion")
	}
	at := h.clock.Now()
	for i, form := range accepted {
		ask := fleet.Question{Method: http.MethodGet, Path: q.Path.String(), Query: q.Query, Accept: form.Accept, Timeout: q.View.Timeout}
		found, _, failures, err := findOne(r.Context(), q, ask)
		if apierrors.IsNotAcceptable(err) && i+1 < len(accepted) {
			continue
		}
		if err != nil {
			return err
		}
		object := bodies.Get().(*bytes.Buffer)
		defer giveBack(object)
		held := h.held.Begin(q.View.User)
		defer held.Forget()
		if failed := found.ReadInto(object, held); failed != nil {
			return fault.Unreachable([]*fault.Fault{failed})
		}
		body, err := rewriteAnswer(q.Leading(found.Member, at), object.Bytes())
		if err == nil && len(body) == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fault.Refuse(http.StatusBadGateway, fmt.Sprintf("reading the answer of cluster %q: %v", found.Member.Name(), err))
		}
		header := w.Header()
		copyHeaders(header, found.Response.Header)
		fault.Warn(header, failures, "an object of this name may be there too")
		header.Set("Content-Type", form.ContentType)
		header.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // an error is the client's: it has gone
		return nil
	}
	return nil
}

// bodies are for objects that are read and passed on.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxBorrowed is the largest of them that is kept.
const maxBorrowed = 128 << 10

func giveBack(body *bytes.Buffer) {
	if body.Cap() <= maxBorrowed {
		body.Reset()
		bodies.Put(body)
	}
}
