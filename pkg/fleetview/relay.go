package fleetview

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// relay lets one member answer, by the URL that it knows.
func relay(w http.ResponseWriter, r *http.Request, q *request.Request, to fleet.Member, query string) {
	r = r.Clone(r.Context())
	r.URL = q.Path.URL(query)
	q.View.Relay(w, r, to)
}

// single passes a request on to the only cluster that the view can have, as it is but for
// the cluster's name in it. See "Views of a single cluster" in the package comment.
func single(w http.ResponseWriter, r *http.Request, view *fleet.View, members []fleet.Member) error {
	q, err := request.New(r, view, members)
	switch {
	case err == nil:
	case len(view.Resources) > 0 || view.Writes == fleet.WritesNone && request.IsResource(r):
		return err
	default:
		// It is for no resource, or the cluster refuses it in its own words.
		q = &request.Request{View: view, Members: members}
		to, err := q.Single()
		if err == nil {
			view.Relay(w, r, to)
		}
		return err
	}
	to, err := q.Single()
	if err != nil {
		return err
	}
	if text := q.Query.Get("resourceVersion"); text != "" {
		if _, err := version.Parse(text); err == nil {
			return fault.Refuse(http.StatusGone, fmt.Sprintf("too old resource version: %s is from when view %q had other clusters: list again without a version", text, view.Name))
		}
	}
	if !q.Streams {
		switch q.Info.Verb {
		case "create", "update", "patch":
			if r, err = unnamed(r, q, to); err != nil {
				return err
			}
		}
	}
	query := r.URL.RawQuery
	if q.Choosing() {
		query = q.Query.Encode()
	}
	relay(w, r, q, to, query)
	return nil
}

// unnamed takes the cluster's name, and what else a view puts there, out of an object in a
// request: its client may have it from another view. An object that does not name the cluster
// stays as it is, byte for byte; one that names another cluster is refused, as in every view.
func unnamed(r *http.Request, q *request.Request, to fleet.Member) (*http.Request, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the request's body: %v", err))
	}
	// The cluster refuses bodies that are too large.
	mentions := bytes.Contains(body, []byte("@"+to.Name())) || bytes.Contains(body, []byte(fleet.AnnotationCluster))
	if len(body) <= maxBody && mentions {
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			media = fleet.JSONType
		}
		switch cluster, err := q.ClusterOf(media, body); {
		case err != nil:
			return nil, err
		case cluster == to.Name():
			if body, err = q.Restore(to, media, body); err != nil {
				return nil, err
			}
		case cluster != "" && q.Info.Verb == "create":
			_, err := q.Find(cluster)
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
