package fleetview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
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
func (h *Handler) write(w http.ResponseWriter, r *http.Request, q *request) error {
	accepted, err := forms(r)
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
	if err := checkBody(media, body); err != nil {
		return err
	}
	to, err := destination(r.Context(), q, media, body)
	if err != nil {
		return err
	}
	if body, err = restore(to, q, media, body); err != nil {
		return err
	}
	response, cancel, err := send(r, q, to, accepted, body)
	if err != nil {
		return unknownOutcome(to, err.Error())
	}
	defer cancel()
	at := h.clock.Now() // after the write, or what watches saw meanwhile would be newer
	held := h.held.Begin(q.view.User)
	defer held.Forget()
	return q.answerWrite(w, q.leading(to, at), memberResponse{member: to, response: response}, held)
}

// destination finds the cluster that a write is for: the one that the path or a field
// selector names, or the object in the body, or the only one that has the object.
func destination(ctx context.Context, q *request, media string, body []byte) (fleet.Member, error) {
	// A Scale is what kubectl makes of each object that a selector finds: it was not read as one.
	isObject := q.info.Verb != "delete" && q.info.Verb != "deletecollection" && q.info.Subresource != "scale"
	if !q.chosen() && isObject {
		if cluster, err := q.clusterOf(media, body); err != nil || cluster != "" {
			if err != nil {
				return nil, err
			}
			return q.find(cluster)
		}
	}
	if m, ok := q.only(); ok {
		return m, nil
	}
	switch {
	case !q.collection():
		return owner(ctx, q)
	case q.info.Verb == "create":
		return nil, fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("view %q has %d clusters: say which one by metadata.name NAME@CLUSTER, or by annotation %s",
			q.view.Name, len(q.members), fleet.AnnotationCluster))
	}
	return nil, fault.Refuse(http.StatusMethodNotAllowed, "objects of many clusters cannot be deleted at once: choose one cluster with field selector "+clusterField+"=CLUSTER")
}

// bodyTypes are what bodies of requests may be.
var bodyTypes = []string{
	fleet.JSONType, yamlType, protobufType, string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
}

func unsupported(media string) error {
	return fault.Refuse(http.StatusUnsupportedMediaType, fmt.Sprintf("a view does not read %q: send one of %s", media, strings.Join(bodyTypes, ", ")))
}

// checkBody refuses what no cluster would read, with a kube-apiserver's codes: where no cluster is
// named, that is not what is wrong with it.
func checkBody(media string, body []byte) error {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil
	case !slices.Contains(bodyTypes, media):
		return unsupported(media)
	case strings.HasSuffix(media, "json") && !json.Valid(body):
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("the body is no JSON, which %s says it is", media))
	}
	return nil
}

// restore takes off what the view has put on, for the member's eyes.
func restore(to fleet.Member, q *request, media string, body []byte) ([]byte, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return body, nil
	}
	if err := q.agrees(to, media, body); err != nil {
		return nil, err
	}
	number := version.Number(to.UID())
	restorer := q.restorer()
	restorer.Cluster = to.Name()
	q.sent = map[string]string{}
	restorer.Version = func(text string) (string, error) {
		v, err := version.Parse(text)
		switch {
		case err != nil && q.view.Single:
			return text, nil // it has the member's own
		case err != nil:
			return "", fault.Refuse(http.StatusBadRequest, err.Error())
		case v.Cluster != number || v.Member == 0:
			return "", fault.Refuse(http.StatusConflict, fmt.Sprintf("resourceVersion %s is not one of an object of cluster %q: read the object again", text, to.Name()))
		}
		member := strconv.FormatUint(v.Member, 10)
		q.sent[member] = text
		return member, nil
	}
	restored, err := q.appendBody(restorer, media, body)
	var refused *apierrors.StatusError
	switch {
	case err == nil:
		return restored, nil
	case errors.As(err, &refused):
		return nil, refused
	}
	return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the request's body: %v", err))
}

// appendBody restores a body of any type.
func (q *request) appendBody(restorer *merge.Restorer, media string, body []byte) ([]byte, error) {
	switch {
	case !slices.Contains(bodyTypes, media):
		return nil, unsupported(media)
	case media == protobufType:
		return restorer.AppendProtobuf(nil, body)
	case media == string(types.JSONPatchType):
		return restorer.AppendJSONPatch(nil, body)
	case media == string(types.ApplyYAMLPatchType), media == yamlType:
		return restorer.AppendYAML(nil, body)
	case q.info.Verb == "delete" || q.info.Verb == "deletecollection":
		return restorer.AppendDeleteOptions(nil, body)
	}
	return restorer.AppendJSON(nil, body)
}

// send sends the write.
func send(r *http.Request, q *request, to fleet.Member, accepted []form, body []byte) (*http.Response, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	request, err := http.NewRequestWithContext(ctx, r.Method, q.path.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	request.URL.RawQuery = q.query.Encode()
	types := make([]string, 0, len(accepted))
	for _, f := range accepted {
		if f.as != "Table" {
			types = append(types, f.accept)
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
func (q *request) answerWrite(w http.ResponseWriter, rewriter *merge.Rewriter, a memberResponse, held *fleet.Holding) error {
	code := a.response.StatusCode
	body, failed := readObject(a, held)
	switch {
	case failed != nil:
		return unknownOutcome(a.member, failed.Reason)
	case code < 200 || code > 599:
		return unknownOutcome(a.member, fmt.Sprintf("status %d", code))
	}
	if code < 300 {
		rewrite := rewriteAnswer
		if q.info.Verb == "deletecollection" {
			rewrite = rewriteDeleted
		}
		var err error
		if body, err = rewrite(rewriter, body); err != nil {
			return fault.Refuse(http.StatusBadGateway, fmt.Sprintf("reading the answer of cluster %q, which has done what was asked: %v", a.member.Name(), err))
		}
	}
	header := w.Header()
	copyHeaders(header, a.response.Header)
	header.Set("Content-Type", a.response.Header.Get("Content-Type"))
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error is the client's: it has gone
	return nil
}

// reviews are groups of which objects are made to ask the API server something, and are not stored.
var reviews = []string{"authentication.k8s.io", "authorization.k8s.io"}

// changes reports whether a request may change something, or opens a stream, in which anything
// may be said.
func changes(r *http.Request, info *apirequest.RequestInfo) bool {
	switch {
	case info.Subresource == "log" && info.Verb == "get":
		return false
	case isStream(r, info):
		return true
	case info.Verb == "create" && info.Name == "" && slices.Contains(reviews, info.APIGroup):
		return false
	}
	return !slices.Contains([]string{"get", "list", "watch", "head"}, info.Verb)
}

// isStream reports whether a request or its answer is no object.
func isStream(r *http.Request, info *apirequest.RequestInfo) bool {
	isWatch := info.IsResourceRequest && info.Name == ""
	return info.Subresource == "log" || reading.LeavesByPath(info) || httprelay.IsUpgrade(r.Header) && !isWatch
}

// refuseChanges returns the error of a request that a view without writes does not take.
func refuseChanges(view *fleet.View, r *http.Request) error {
	if view.Writes != fleet.WritesNone {
		return nil
	}
	if info, err := requestInfo.NewRequestInfo(parsable(r)); err == nil && !changes(r, info) {
		return nil
	}
	return fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("view %q only reads (its spec.writes is None): ask the cluster itself, or another view", view.Name))
}

// isResource reports whether a request is for a resource, by whatever path.
func isResource(r *http.Request) bool {
	info, err := requestInfo.NewRequestInfo(parsable(r))
	return err != nil || info.IsResourceRequest
}

// bare reports whether the request names no cluster, and the view wants one named.
func (q *request) bare() bool {
	return q.changes && q.view.Writes == fleet.WritesNamed && !q.chosen()
}
