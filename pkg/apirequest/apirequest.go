package apirequest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// Resolver reads requests as every Kubernetes API server does. It may be used by several
// goroutines.
var Resolver request.RequestInfoResolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// leaving are the subresources by which a request leaves the Kubernetes API.
var leaving = []string{"exec", "attach", "portforward", "proxy"}

// LeavesAPI reports whether a request leaves the Kubernetes API, whose reading is info: by its
// method, its headers, its subresource or the former verb proxy.
func LeavesAPI(r *http.Request, info *request.RequestInfo) bool {
	return httprelay.IsUpgrade(r.Header) && !isWebSocketWatch(r, info) || r.Method == http.MethodConnect || LeavesByPath(info)
}

// isWebSocketWatch reports whether a request is a watch whose events come as messages of a
// WebSocket, as Java's fabric8 and Headlamp watch. An API server reads nothing that its client
// sends there.
func isWebSocketWatch(r *http.Request, info *request.RequestInfo) bool {
	offers := r.Header["Upgrade"]
	return r.Method == http.MethodGet && info.IsResourceRequest && info.Verb == "watch" && info.Subresource == "" &&
		len(offers) == 1 && strings.EqualFold(offers[0], "websocket")
}

// LeavesByPath reports whether a request leaves the Kubernetes API whatever its method and
// headers are.
func LeavesByPath(info *request.RequestInfo) bool {
	return info.Verb == "proxy" || slices.Contains(leaving, info.Subresource)
}

// IsDryRun reports whether a request changes nothing because its query says so, and nothing else
// can say otherwise: a body of a deletion or an eviction has options of its own, in place of the
// query's, and few subresources know the parameter. A kube-apiserver reads the query as
// url.Values do, and refuses values other than All.
func IsDryRun(info *request.RequestInfo, query string, hasBody bool) bool {
	if !info.IsResourceRequest {
		return false
	}
	switch info.Verb {
	case "create", "update", "patch":
		if !slices.Contains([]string{"", "status", "scale"}, info.Subresource) {
			return false
		}
	case "delete", "deletecollection":
		if hasBody || info.Subresource != "" {
			return false
		}
	default:
		return false
	}
	values, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	given := values["dryRun"]
	return err == nil && len(given) > 0 && !slices.ContainsFunc(given, func(value string) bool { return value != "All" })
}

// IsSelfReview reports whether a request asks what its user is and may do. Such a request is
// created, and changes nothing: those who only read may send it.
func IsSelfReview(info *request.RequestInfo) bool {
	if !info.IsResourceRequest || info.Verb != "create" || info.Subresource != "" || info.Name != "" {
		return false
	}
	switch info.APIGroup {
	case "authorization.k8s.io":
		return info.Resource == "selfsubjectaccessreviews" || info.Resource == "selfsubjectrulesreviews"
	case "authentication.k8s.io":
		return info.Resource == "selfsubjectreviews"
	}
	return false
}
