package apigroup

import (
	"encoding/json"
	"net/http"
	"slices"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// FleetViewsPath is that of the hub's own API, whose right to list FleetViews the filters
// have asked for.
var FleetViewsPath = "/apis/" + proxyv1alpha1.GroupVersion.String() + "/" + scope.ViewsResource

// WithFleetViews answers a list of FleetViews, without their status, as the hub's
// kube-apiserver would: the page for people reaches this origin only. It is in no discovery,
// and nothing else of the group is served.
func WithFleetViews(next http.Handler, all scope.Views) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A selector could be what the right depends on, and none is served.
		if info := scope.Of(r.Context()).Info; r.URL.Path != FleetViewsPath || info.Verb != "list" || r.URL.RawQuery != "" {
			next.ServeHTTP(w, r)
			return
		}
		list := proxyv1alpha1.FleetViewList{Items: []proxyv1alpha1.FleetView{}}
		list.SetGroupVersionKind(proxyv1alpha1.GroupVersion.WithKind("FleetViewList"))
		names := all.Names()
		slices.Sort(names)
		for _, name := range names {
			// One that is gone since, or is not known yet, is in the next answer.
			if view, err := all.Get(name); err == nil && view != nil {
				list.Items = append(list.Items, *view)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache, private")
		// The client may be gone, and no one else reads the error.
		_ = json.NewEncoder(w).Encode(list)
	})
}
