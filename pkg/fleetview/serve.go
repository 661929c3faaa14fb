package fleetview

import (
	"fmt"
	"net/http"
	"slices"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// Serve answers a request for a view. The request's URL is the Kubernetes path and query,
// without what precedes it in the view's endpoint.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, view fleet.View) {
	if err := request.RefuseChanges(&view, r); err != nil {
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
	q, err := request.New(r, view, members)
	switch {
	case err != nil:
		return err
	case q.Unlisted != nil:
		relay(w, r, q, q.Unlisted, r.URL.RawQuery)
		return nil
	case len(q.Members) == 0:
		return q.NoCluster()
	case q.Streams:
		to, err := owner(r.Context(), q)
		if err == nil {
			relay(w, r, q, to, r.URL.RawQuery)
		}
		return err
	}
	switch q.Info.Verb {
	case "list":
		return h.lists.Serve(w, r, q)
	case "watch":
		return h.watch(w, r, q)
	case "get":
		return h.get(w, r, q)
	case "create", "update", "patch", "delete", "deletecollection":
		if q.IsReview() {
			return h.review(w, r, q)
		}
		return h.write(w, r, q)
	}
	w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE")
	return fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("a view has no method %s: ask one cluster", r.Method))
}
