package fleetview

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// single passes a request on to the only cluster that the view can have, as it is but for
// the cluster's name in it. See "Views of a single cluster" in the package comment.
func single(w http.ResponseWriter, r *http.Request, view *View, members []Member) error {
	q, err := newRequest(r, view, members)
	switch {
	case err == nil:
	case len(view.Resources) > 0 || view.Writes == WritesNone && isResource(r):
		return err
	default:
		// It is for no resource, or the cluster refuses it in its own words.
		q = &request{view: view, members: members}
		to, err := q.single()
		if err == nil {
			view.Relay(w, r, to)
		}
		return err
	}
	to, err := q.single()
	if err != nil {
		return err
	}
	if text := q.query.Get("resourceVersion"); text != "" {
		if _, err := version.Parse(text); err == nil {
			return fault.Refuse(http.StatusGone, fmt.Sprintf("too old resource version: %s is from when view %q had other clusters: list again without a version", text, view.Name))
		}
	}
	if !q.streams {
		switch q.info.Verb {
		case "create", "update", "patch":
			if r, err = q.unnamed(r, to); err != nil {
				return err
			}
		}
	}
	query := r.URL.RawQuery
	if len(q.terms) > 0 {
		query = q.query.Encode()
	}
	relay(w, r, q, to, query)
	return nil
}

// single returns the cluster of a view that has no other.
func (q *request) single() (Member, error) {
	switch {
	case q.unlisted != nil:
		return q.unlisted, nil
	case len(q.members) > 0:
		return q.members[0], nil
	}
	return nil, q.noCluster()
}

// unnamed takes the cluster's name, and what else a view puts there, out of an object in a
// request: its client may have it from another view. An object that does not name the cluster
// stays as it is, byte for byte; one that names another cluster is refused, as in every view.
func (q *request) unnamed(r *http.Request, to Member) (*http.Request, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the request's body: %v", err))
	}
	// The cluster refuses bodies that are too large.
	mentions := bytes.Contains(body, []byte("@"+to.Name())) || bytes.Contains(body, []byte(AnnotationCluster))
	if len(body) <= maxBody && mentions {
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			media = jsonType
		}
		switch cluster, err := q.clusterOf(media, body); {
		case err != nil:
			return nil, err
		case cluster == to.Name():
			if body, err = restore(to, q, media, body); err != nil {
				return nil, err
			}
		case cluster != "" && q.info.Verb == "create":
			_, err := q.find(cluster)
			return nil, err
		}
	}
	length := r.ContentLength
	if len(body) <= maxBody {
		length = int64(len(body))
	}
	rest := r.Body
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}, length
	r.Header.Del("Content-Length") // it is the transport's to write
	return r, nil
}
