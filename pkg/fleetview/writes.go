package fleetview

import (
	"fmt"
	"net/http"
	"slices"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

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
func refuseChanges(view *View, r *http.Request) error {
	if view.Writes != WritesNone {
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
	return q.changes && q.view.Writes == WritesNamed && !q.chosen()
}
