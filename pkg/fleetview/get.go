package fleetview

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
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
	if wanted, err := version.Parse(q.query.Get("resourceVersion")); err == nil {
		// No member knows it. The newest is not older, as in a list.
		h.clock.Follow(wanted.Time)
		q.query.Del("resourceVersion")
	}
	at := h.clock.Now()
	for i, form := range accepted {
		ask := memberRequest{method: http.MethodGet, path: q.path.String(), query: q.query, accept: form.accept, timeout: q.view.Timeout}
		found, _, failures, err := findOne(r.Context(), q, ask)
		if apierrors.IsNotAcceptable(err) && i+1 < len(accepted) {
			continue
		}
		if err != nil {
			return err
		}
		object := bodies.Get().(*bytes.Buffer)
		defer giveBack(object)
		held := h.held.Begin(q.view.User)
		defer held.Forget()
		if failed := readInto(object, found, held); failed != nil {
			return fault.Unreachable([]*fault.Fault{failed})
		}
		body, err := rewriteAnswer(q.leading(found.member, at), object.Bytes())
		if err == nil && len(body) == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fault.Refuse(http.StatusBadGateway, fmt.Sprintf("reading the answer of cluster %q: %v", found.member.Name(), err))
		}
		header := w.Header()
		copyHeaders(header, found.response.Header)
		if len(failures) > 0 {
			fault.AddWarning(header, fleet.SomeOf(clustersOf(failures))+" did not answer, and may have an object of this name too")
		}
		header.Set("Content-Type", form.contentType)
		header.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // an error is the client's: it has gone
		return nil
	}
	return nil
}

// findOne returns the answer of the one member that has what is asked for, and the others'.
func findOne(ctx context.Context, q *request, ask memberRequest) (found memberResponse, absent, failures []*fault.Fault, _ error) {
	var having []memberResponse
	for _, a := range ask.askAll(ctx, q.members) {
		switch {
		case a.failure == nil:
			having = append(having, a)
		case a.failure.Code == http.StatusNotFound:
			absent = append(absent, a.failure)
		default:
			failures = append(failures, a.failure)
		}
	}
	incomplete := q.view.FailWhenUnreachable && len(failures) > 0
	if len(having) == 1 && !incomplete {
		return having[0], absent, failures, nil
	}
	for _, a := range having {
		_ = a.response.Body.Close() // it is not wanted
	}
	switch {
	case len(having) > 1:
		return memberResponse{}, nil, nil, ambiguous(q, having)
	case incomplete:
		return memberResponse{}, nil, nil, fault.Unreachable(failures)
	}
	return memberResponse{}, nil, nil, q.orNoCluster(noneAnswered(failures, absent))
}

// orNoCluster adds to the error of an object that no member has that its name ends in no cluster
// of the view, which says more to those who meant one. Some names have an @ of their own.
func (q *request) orNoCluster(err error) error {
	var missing *fault.Fault
	if _, cluster, ok := cutLast(q.info.Name); ok && errors.As(err, &missing) && missing.Code == http.StatusNotFound {
		missing.Answer.Message += fmt.Sprintf("; view %q has no cluster %q that you may reach; it has: %s", q.view.Name, cluster, fleet.SomeOf(q.everyone))
	}
	return err
}

// clustersOf are the clusters of failures.
func clustersOf(failures []*fault.Fault) []string {
	names := make([]string, len(failures))
	for i, f := range failures {
		names[i] = f.Cluster
	}
	slices.Sort(names)
	return names
}

// ambiguous is the error of a name that objects of several clusters have.
func ambiguous(q *request, having []memberResponse) error {
	candidates := make([]string, len(having))
	for i, a := range having {
		candidates[i] = q.info.Name + "@" + a.member.Name()
	}
	return notNamed(q, candidates, fmt.Sprintf("%d clusters have %s %q: name one of them: %s", len(having), q.info.Resource, q.info.Name, fleet.SomeOf(candidates)))
}

// notNamed is the error of a request that must name one of these objects.
func notNamed(q *request, candidates []string, message string) error {
	err := fault.Refuse(http.StatusConflict, message)
	// Clients repeat what ends in a Conflict, kubectl scale for five minutes. This would end so again.
	err.ErrStatus.Reason = metav1.StatusReasonBadRequest
	err.ErrStatus.Details = &metav1.StatusDetails{Name: q.info.Name, Group: q.info.APIGroup, Kind: q.info.Resource}
	for _, candidate := range candidates {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "Candidate", Field: "metadata.name", Message: candidate})
	}
	return err
}

// owner returns the member that a request is for which changes the object of its path, or reads
// its log.
func owner(ctx context.Context, q *request) (fleet.Member, error) {
	if m, ok := q.only(); ok {
		return m, nil
	}
	object, name := q.path.object(), q.info.Name
	if q.info.Subresource == "proxy" {
		// The name may have a scheme and a port: https:web:8443.
		if _, plain, _, ok := utilnet.SplitSchemeNamePort(name); ok {
			object, name = object.named(plain), plain
		}
	}
	ask := memberRequest{method: http.MethodGet, path: object.String(), query: url.Values{}, accept: metadataOnly, timeout: q.view.Timeout}
	found, absent, failures, err := findOne(ctx, q, ask)
	if err != nil {
		return nil, err
	}
	_ = found.response.Body.Close() // that there is one is enough
	candidate := q.info.Name + "@" + found.member.Name()
	has := fmt.Sprintf("cluster %q has %s %q", found.member.Name(), q.info.Resource, q.info.Name)
	if len(failures) > 0 {
		has += ", but " + fleet.SomeOf(clustersOf(failures)) + " did not answer"
	}
	switch {
	case q.bare():
		return nil, notNamed(q, []string{candidate}, has+": to change it or to connect to it, name the cluster, as "+candidate)
	case len(failures) > 0:
		err := fault.Unreachable(failures)
		err.ErrStatus.Message = has + ": name the cluster, as " + candidate
		return nil, err
	case q.changes && lone(absent, name):
		return nil, notNamed(q, []string{candidate}, fmt.Sprintf("%s, and most clusters do not have %s at all: name the cluster, as %s", has, q.info.Resource, candidate))
	}
	return found.member, nil
}

// lone reports whether fewer than half of the members have the resource of which one has an
// object: that one may say so to be written to in another's place. The others' answers tell: a
// Status about an object has its name.
func lone(absent []*fault.Fault, name string) bool {
	having := 1
	for _, f := range absent {
		if details := f.Answer.Details; details != nil && details.Name == name {
			having++
		}
	}
	return 2*having < 1+len(absent)
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
