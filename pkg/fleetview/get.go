package fleetview

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// metadataOnly is what members are asked for when an object is looked for.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// get answers a request for one object.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, q *request) error {
	accepted, err := forms(r)
	if err != nil {
		return err
	}
	if accepted = q.readable(accepted); len(accepted) == 0 {
		return fault.Refuse(http.StatusNotAcceptable, fmt.Sprintf("a view writes %s that are asked for as NAME@CLUSTER with %s: accept it", q.info.Resource, jsonType))
	}
	if wanted, err := version.Parse(q.query.Get("resourceVersion")); err == nil {
		// No member knows it. The newest is not older, as in a list.
		h.clock.Follow(wanted.Time)
		q.query.Del("resourceVersion")
	}
	at := h.clock.Now()
	for i, form := range accepted {
		ask := memberRequest{method: http.MethodGet, path: q.path.String(), query: q.query, accept: form.accept, timeout: q.view.Timeout}
		found, failures, err := findOne(r.Context(), q, ask)
		if apierrors.IsNotAcceptable(err) && i+1 < len(accepted) {
			continue
		}
		if err != nil {
			return err
		}
		object := bodies.Get().(*bytes.Buffer)
		defer giveBack(object)
		if failed := readInto(object, found); failed != nil {
			return fault.Unreachable([]*fault.Fault{failed})
		}
		body, err := rewriteAnswer(q.leading(found.member, at), form.asked(), object.Bytes())
		if err == nil && len(body) == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fault.Refuse(http.StatusBadGateway, fmt.Sprintf("reading the answer of cluster %q: %v", found.member.Name(), err))
		}
		header := w.Header()
		copyHeaders(header, found.response.Header)
		if len(failures) > 0 {
			fault.AddWarning(header, fmt.Sprintf("%d clusters did not answer; they may have an object of this name too", len(failures)))
		}
		header.Set("Content-Type", form.contentType)
		header.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // an error is the client's: it has gone
		return nil
	}
	return nil
}

// findOne returns the answer of the one member that has what is asked for.
func findOne(ctx context.Context, q *request, ask memberRequest) (memberResponse, []*fault.Fault, error) {
	answers := ask.askAll(ctx, q.members)
	failures := failuresOf(q.missing)
	var found []memberResponse
	var absent []*fault.Fault
	for _, a := range answers {
		switch {
		case a.failure == nil:
			found = append(found, a)
		case a.failure.Code == http.StatusNotFound:
			absent = append(absent, a.failure)
		default:
			failures = append(failures, a.failure)
		}
	}
	incomplete := q.view.FailWhenUnreachable && len(failures) > 0
	if len(found) == 1 && !incomplete {
		return found[0], failures, nil
	}
	for _, a := range found {
		_ = a.response.Body.Close() // it is not wanted
	}
	switch {
	case len(found) > 1:
		return memberResponse{}, nil, ambiguous(q, found)
	case incomplete:
		return memberResponse{}, nil, fault.Unreachable(failures)
	}
	return memberResponse{}, nil, noneAnswered(failures, absent)
}

// ambiguous is the error of a name that objects of several clusters have.
func ambiguous(q *request, found []memberResponse) error {
	candidates := make([]string, len(found))
	for i, a := range found {
		candidates[i] = q.info.Name + "@" + a.member.Name()
	}
	shown := candidates
	more := ""
	if len(shown) > fault.MaxNamed {
		shown, more = shown[:fault.MaxNamed], fmt.Sprintf(" and %d more", len(candidates)-fault.MaxNamed)
	}
	err := fault.Refuse(http.StatusConflict, fmt.Sprintf("%d clusters have %s %q: name one of them: %s%s", len(found), q.info.Resource, q.info.Name, strings.Join(shown, ", "), more))
	err.ErrStatus.Details = &metav1.StatusDetails{Name: q.info.Name, Group: q.info.APIGroup, Kind: q.info.Resource}
	for _, candidate := range candidates {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "Candidate", Field: "metadata.name", Message: candidate})
	}
	return err
}

// owner returns the member that has the object of the request's path.
func owner(ctx context.Context, q *request) (Member, error) {
	if m, ok, err := q.only(); ok {
		return m, err
	}
	object := q.path.object()
	if q.info.Subresource == "proxy" {
		// The name may have a scheme and a port: https:web:8443.
		if _, name, _, ok := utilnet.SplitSchemeNamePort(q.info.Name); ok {
			object = object.named(name)
		}
	}
	ask := memberRequest{method: http.MethodGet, path: object.String(), query: url.Values{}, accept: metadataOnly, timeout: q.view.Timeout}
	found, failures, err := findOne(ctx, q, ask)
	if err != nil {
		return nil, err
	}
	_ = found.response.Body.Close() // that there is one is enough
	if len(failures) > 0 {
		return nil, fault.Refuse(http.StatusServiceUnavailable, fmt.Sprintf("cluster %q has %s %q, but %d clusters did not answer, such as %s: name the cluster, as %s@%s",
			found.member.Name(), q.info.Resource, q.info.Name, len(failures), failures[0].Cluster, q.info.Name, found.member.Name()))
	}
	return found.member, nil
}

// relayed are the headers of a member's answer that clients get to see.
var relayed = []string{"Warning", "Retry-After", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}

func copyHeaders(to, from http.Header) {
	for _, name := range relayed {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
	}
	to.Set("Cache-Control", "no-cache, private")
}
