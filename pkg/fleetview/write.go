package fleetview

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

const (
	// maxBody is the largest request body that a kube-apiserver takes.
	maxBody = 3 << 20
	// writeTimeout is how long a member may take for a write: a kube-apiserver's own
	// limit, and a little.
	writeTimeout = 65 * time.Second
)

// readBody reads a request's body of at most limit bytes, which errors call what.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, what string) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fault.Refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("%s has more than %d bytes", what, limit))
	case err != nil:
		return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading %s: %v", what, err))
	}
	return body, nil
}

// write sends a write to the one cluster that it is for.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, q *request.Request) error {
	accepted, err := request.Forms(r)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, maxBody, "the request's body")
	if err != nil {
		return err
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		media = fleet.JSONType
	}
	if err := request.CheckBody(media, body); err != nil {
		return err
	}
	to, err := destination(r.Context(), q, media, body)
	if err != nil {
		return err
	}
	if body, err = q.Restore(to, media, body); err != nil {
		return err
	}
	response, cancel, err := send(r, q, to, accepted, body)
	if err != nil {
		return unknownOutcome(to, err.Error())
	}
	defer cancel()
	at := h.clock.Now() // after the write, or what watches saw meanwhile would be newer
	held := h.held.Begin(q.View.User)
	defer held.Forget()
	return answerWrite(w, q, q.Leading(to, at), fleet.Answer{Member: to, Response: response}, held)
}

// destination finds the cluster that a write is for: the one that the path or a field
// selector names, or the object in the body, or the only one that has the object.
func destination(ctx context.Context, q *request.Request, media string, body []byte) (fleet.Member, error) {
	// A Scale is what kubectl makes of each object that a selector finds: it was not read as one.
	isObject := q.Info.Verb != "delete" && q.Info.Verb != "deletecollection" && q.Info.Subresource != "scale"
	if !q.Chosen() && isObject {
		if cluster, err := q.ClusterOf(media, body); err != nil || cluster != "" {
			if err != nil {
				return nil, err
			}
			return q.Find(cluster)
		}
	}
	if m, ok := q.Only(); ok {
		return m, nil
	}
	switch {
	case !q.Collection():
		return owner(ctx, q)
	case q.Info.Verb == "create":
		has := fmt.Sprintf("%d clusters", len(q.Members))
		if cluster := q.UnknownCluster(media, body); cluster != "" {
			has = fmt.Sprintf("no cluster %q that you may reach; it has: %s", cluster, fleet.SomeOf(q.Everyone))
		}
		return nil, fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("view %q has %s: say which one by metadata.name NAME@CLUSTER, or by annotation %s",
			q.View.Name, has, fleet.AnnotationCluster))
	case q.Info.Verb != "deletecollection":
		return nil, fault.Refuse(http.StatusMethodNotAllowed, "an object is changed by its name: put the name into the path")
	}
	return nil, fault.Refuse(http.StatusMethodNotAllowed, "objects of many clusters cannot be deleted at once: choose one cluster with field selector "+request.ClusterField+"=CLUSTER")
}

// send sends the write.
func send(r *http.Request, q *request.Request, to fleet.Member, accepted []request.Form, body []byte) (*http.Response, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	request, err := http.NewRequestWithContext(ctx, r.Method, q.Path.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	request.URL.RawQuery = q.Query.Encode()
	types := make([]string, 0, len(accepted))
	for _, f := range accepted {
		if f.As != "Table" {
			types = append(types, f.Accept)
		}
	}
	if !slices.Contains(types, fleet.JSONType) {
		types = append(types, fleet.JSONType)
	}
	request.Header.Set("Accept", strings.Join(types, ","))
	for _, name := range []string{"Content-Type", "User-Agent"} {
		if value := r.Header.Get(name); value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := to.RoundTrip(request)
	if err != nil {
		cancel()
	}
	return response, cancel, err
}

// unknownOutcome is the error of a write that was sent, and of which nothing is known.
func unknownOutcome(to fleet.Member, reason string) error {
	err := fault.Refuse(http.StatusServiceUnavailable, fmt.Sprintf("cluster %q did not answer (%s), but may have done what was asked: read the object before you try again", to.Name(), reason))
	err.ErrStatus.Details = nil // a client must not repeat it by itself
	return err
}

// answerWrite sends back what the member answered.
func answerWrite(w http.ResponseWriter, q *request.Request, rewriter *merge.Rewriter, a fleet.Answer, held *fleet.Holding) error {
	code := a.Response.StatusCode
	body, failed := a.Read(held)
	switch {
	case failed != nil:
		return unknownOutcome(a.Member, failed.Reason)
	case code < 200 || code > 599:
		return unknownOutcome(a.Member, fmt.Sprintf("status %d", code))
	}
	if code < 300 {
		rewrite := rewriteAnswer
		if q.Info.Verb == "deletecollection" {
			rewrite = rewriteDeleted
		}
		var err error
		if body, err = rewrite(rewriter, body); err != nil {
			return fault.Refuse(http.StatusBadGateway, fmt.Sprintf("reading the answer of cluster %q, which has done what was asked: %v", a.Member.Name(), err))
		}
	}
	header := w.Header()
	copyHeaders(header, a.Response.Header)
	header.Set("Content-Type", a.Response.Header.Get("Content-Type"))
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error is the client's: it has gone
	return nil
}
