package apirequest

import (
	"net/http"
	"slices"

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
	return httprelay.IsUpgrade(r.Header) || r.Method == http.MethodConnect || LeavesByPath(info)
}

// LeavesByPath reports whether a request leaves the Kubernetes API whatever its method and
// headers are.
func LeavesByPath(info *request.RequestInfo) bool {
	return info.Verb == "proxy" || slices.Contains(leaving, info.Subresource)
}
