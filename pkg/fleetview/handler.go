package fleetview

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// Handler serves views. Its methods are safe for concurrent use.
type Handler struct {
	clock     version.Clock
	positions *position.Store
	discovery *discovery.Discovery
	// held counts what half-read answers of members take.
	held     *fleet.Memory
	draining <-chan struct{}
	// usual are the shares of first pages, by who asked for what.
	usual *fleet.Sized[string, share]
	// kinds are those that users' lists were of, where a resource is not called like its kind.
	kinds *fleet.Sized[string, metav1.TypeMeta]
}

// Options configure a Handler. The zero value is ready.
type Options struct {
	// Draining is closed when watches should go on elsewhere; nil never is.
	Draining <-chan struct{}
	// Positions are those of this replica, which may ask others; nil makes some.
	Positions *position.Store
}

// New makes a Handler. It does no I/O.
func New(o Options) *Handler {
	discovery := discovery.NewDiscovery()
	h := &Handler{clock: version.Clock{Replica: rand.Uint32N(version.Replicas)}, positions: o.Positions, held: discovery.Held, discovery: discovery, usual: fleet.NewSized[string, share](maxUsual), kinds: fleet.NewSized[string, metav1.TypeMeta](maxKinds), draining: o.Draining}
	if h.positions == nil {
		h.positions = new(position.Store)
	}
	return h
}

// Serve answers a request for a view. The request's URL is the Kubernetes path and query,
// without what precedes it in the view's endpoint.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, view fleet.View) {
	if err := refuseChanges(&view, r); err != nil {
		fault.Write(w, err)
		return
	}
	members, err := view.Members(r.Context())
	if err != nil {
		fault.Write(w, err)
		return
	}
	if discovery.IsDiscovery(r.URL.Path) && (!view.Single || len(view.Resources) > 0) {
		h.discovery.Serve(w, r, view, members)
		return
	}
	switch {
	case view.Single:
		err = single(w, r, &view, members)
	case slices.Contains(healthPaths, r.URL.Path):
		err = health(w, r, &view, members)
	default:
		err = h.serve(w, r, &view, members)
	}
	if err != nil {
		fault.Write(w, err)
	}
}

// serve answers a request for objects.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, view *fleet.View, members []fleet.Member) error {
	q, err := newRequest(r, view, members)
	switch {
	case err != nil:
		return err
	case q.unlisted != nil:
		relay(w, r, q, q.unlisted, r.URL.RawQuery)
		return nil
	case len(q.members) == 0:
		return q.noCluster()
	case q.streams:
		to, err := owner(r.Context(), q)
		if err == nil {
			relay(w, r, q, to, r.URL.RawQuery)
		}
		return err
	}
	switch q.info.Verb {
	case "list":
		return h.list(w, r, q)
	case "watch":
		return h.watch(w, r, q)
	case "get":
		return h.get(w, r, q)
	case "create", "update", "patch", "delete", "deletecollection":
		if q.isReview() {
			return h.review(w, r, q)
		}
		return h.write(w, r, q)
	}
	w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE")
	return fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("a view has no method %s: ask one cluster", r.Method))
}

// relay lets one member answer, by the URL that it knows.
func relay(w http.ResponseWriter, r *http.Request, q *request, to fleet.Member, query string) {
	r = r.Clone(r.Context())
	r.URL = q.path.url(query)
	q.view.Relay(w, r, to)
}

// single passes a request on to the only cluster that the view can have, as it is but for
// the cluster's name in it. See "Views of a single cluster" in the package comment.
func single(w http.ResponseWriter, r *http.Request, view *fleet.View, members []fleet.Member) error {
	q, err := newRequest(r, view, members)
	switch {
	case err == nil:
	case len(view.Resources) > 0 || view.Writes == fleet.WritesNone && isResource(r):
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
func (q *request) single() (fleet.Member, error) {
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
func (q *request) unnamed(r *http.Request, to fleet.Member) (*http.Request, error) {
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
