package fleetview

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// healthPaths are where API servers say how they are.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// health answers for a view that it is well if one of its members is.
func health(w http.ResponseWriter, r *http.Request, view *fleet.View, members []fleet.Member) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return fault.Refuse(http.StatusMethodNotAllowed, fmt.Sprintf("the path %s can only be read", r.URL.Path))
	}
	if len(members) == 0 {
		return (&request.Request{View: view}).NoCluster()
	}
	ask := fleet.Question{Method: http.MethodGet, Path: r.URL.Path, Query: url.Values{}, Accept: "*/*", Timeout: view.Timeout}
	var failures []*fault.Fault
	ok := false
	for _, a := range ask.AskAll(r.Context(), members) {
		if a.Failure != nil {
			failures = append(failures, a.Failure)
			continue
		}
		_ = a.Response.Body.Close()
		ok = true
	}
	if !ok {
		return fault.AllFailed(failures, nil)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache, private")
	_, _ = io.WriteString(w, "ok")
	return nil
}
