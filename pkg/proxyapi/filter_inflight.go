package proxyapi

import (
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// withInflightLimits counts a request while it is served, and refuses it if there are too
// many or no memory is left for more.
func (f *requestFilters) withInflightLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.memory.Err(); err != nil {
			f.metrics.denied.WithLabelValues("memory").Inc()
			f.refuse(w, r, refusal(http.StatusServiceUnavailable, err.Error()))
			return
		}
		scope := scopeOf(r.Context())
		scope.holder = userOf(r.Context()).GetName()
		if scope.passThrough {
			// All users are anonymous there: the address tells them apart best.
			scope.holder = hubaccess.ClientAddress(r)
		}
		limits := f.requests
		if scope.long {
			limits = f.streams
		}
		for _, part := range []struct {
			limiter *limiter
			n       int
		}{{limits, 1}, {f.uploads, uploadOf(r)}} {
			release, err := part.limiter.acquire(scope.holder, scope.target.Cluster, part.n)
			if err != nil {
				f.metrics.denied.WithLabelValues("limit").Inc()
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
