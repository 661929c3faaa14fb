package fleetview

import (
	"fmt"
	"math/rand/v2"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch"
)

// Handler serves views. Its methods are safe for concurrent use.
type Handler struct {
	clock     version.Clock
	positions *watch.Positions
	discovery *discovery
	// held counts what half-read answers of members take.
	held     *heldBytes
	draining <-chan struct{}
	// usual are the shares of first pages, by who asked for what.
	usual *sized[string, share]
	// kinds are those that users' lists were of, where a resource is not called like its kind.
	kinds *sized[string, metav1.TypeMeta]
}

// Options configure a Handler. The zero value is ready.
type Options struct {
	// Draining is closed when watches should go on elsewhere; nil never is.
	Draining <-chan struct{}
	// Positions are those of this replica, which may ask others; nil makes some.
	Positions *watch.Positions
}

// New makes a Handler. It does no I/O.
func New(o Options) *Handler {
	discovery := newDiscovery()
	h := &Handler{clock: version.Clock{Replica: rand.Uint32N(version.Replicas)}, positions: o.Positions, held: discovery.held, discovery: discovery, usual: newSized[string, share](maxUsual), kinds: newSized[string, metav1.TypeMeta](maxKinds), draining: o.Draining}
	if h.positions == nil {
		h.positions = new(watch.Positions)
	}
	return h
}

// Serve answers a request for a view. The request's URL is the Kubernetes path and query,
// without what precedes it in the view's endpoint.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, view View) {
	if err := refuseChanges(&view, r); err != nil {
		fault.Write(w, err)
		return
	}
	members, err := view.Members(r.Context())
	if err != nil {
		fault.Write(w, err)
		return
	}
	if isDiscovery(r.URL.Path) && (!view.Single || len(view.Resources) > 0) {
		h.discovery.serve(w, r, view, members)
		return
	}
	if view.Single {
		err = single(w, r, &view, members)
	} else {
		err = h.serve(w, r, &view, members)
	}
	if err != nil {
		fault.Write(w, err)
	}
}

// serve answers a request for objects.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, view *View, members []Member) error {
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
		return h.write(w, r, q)
	}
	w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE")
	return fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("a view has no method %s: ask one cluster", r.Method))
}

// relay lets one member answer, by the URL that it knows.
func relay(w http.ResponseWriter, r *http.Request, q *request, to Member, query string) {
	r = r.Clone(r.Context())
	r.URL = q.path.url(query)
	q.view.Relay(w, r, to)
}
