package proxyapi

import (
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// held is what a request holds of a limiter while it is served.
type held struct {
	limiter *limiter
	n       int
}

// withInflightLimits counts a request while it is served, and refuses it if there are too
// many or no memory is left for more. A request for a view counts once, however many
// clusters are asked: it is for no one cluster here. A watch of a view is a stream as any
// other: most of the time it asks no cluster.
func (f *requestFilters) withInflightLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.memory.Err(); err != nil {
			f.metrics.rejected.WithLabelValues("memory").Inc()
			f.refuse(w, r, refusal(http.StatusServiceUnavailable, err.Error()))
			return
		}
		scope := scopeOf(r.Context())
		scope.holder = userOf(r.Context()).GetName()
		if scope.passThrough {
			// All users are anonymous there: where they are tells them apart best.
			scope.holder = hubaccess.ClientSource(r)
		}
		parts := [...]held{{f.uploads, uploadOf(r)}, {f.requests, 1}}
		switch {
		case scope.long:
			parts[1].limiter = f.streams
		case scope.kind == viewScope:
			parts[1].limiter = f.viewRequests
		}
		for _, part := range parts {
			release, err := part.limiter.acquire(scope.holder, scope.target.Cluster, part.n)
			if err != nil {
				f.metrics.rejected.WithLabelValues("limit").Inc()
				f.refuse(w, r, err)
				return
			}
			defer release()
		}
		next.ServeHTTP(w, r)
	})
}

// uploadOf is how much of a request's body may be in memory, unread.
func uploadOf(r *http.Request) int {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.Method == http.MethodConnect || httprelay.IsUpgrade(r.Header):
		return 0
	case r.ContentLength < 0 || r.ContentLength > httprelay.Window:
		return httprelay.Window
	}
	return int(r.ContentLength)
}
