package request

import (
	"net/http"
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
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

// isFormerVerb reports whether the path has a verb before the resource, as
// /api/v1/watch/pods. It is deprecated since Kubernetes 1.11.
func isFormerVerb(path string, info *apirequest.RequestInfo) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	first := 2 // behind api/v1
	if info.APIPrefix == "apis" {
		first = 3
	}
	return first < len(segments) && (segments[first] == "watch" || segments[first] == "proxy")
}
