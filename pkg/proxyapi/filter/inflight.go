package filter

import (
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authn"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Held is what a request holds of a limiter while it is served.
type Held struct {
	Limiter *scope.Limiter
	N       int
}

// WithInflightLimits counts a request while it is served, and refuses it if there are too
// many or no memory is left for more. A request for a view counts once, however many
// clusters are asked: it is for no one cluster here. A watch of a view is a stream as any
// other: most of the time it asks no cluster.
func (f *Filters) WithInflightLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.Memory.Err(); err != nil {
			f.Metrics.Rejected.WithLabelValues("memory").Inc()
			f.Refuse(w, r, status.New(http.StatusServiceUnavailable, err.Error()))
			return
		}
		rs := scope.Of(r.Context())
		rs.Holder = scope.UserOf(r.Context()).GetName()
		if rs.PassThrough {
			// All users are anonymous there: where they are tells them apart best.
			rs.Holder = authn.ClientSource(r)
		}
		parts := [...]Held{{f.Uploads, UploadOf(r)}, {f.Requests, 1}}
		switch {
		case rs.Long:
			parts[1].Limiter = f.Streams
		case rs.Kind == scope.View:
			parts[1].Limiter = f.ViewRequests
		}
		for _, part := range parts {
			release, err := part.Limiter.Acquire(rs.Holder, rs.Target.Cluster, part.N)
			if err != nil {
				f.Metrics.Rejected.WithLabelValues("limit").Inc()
				f.Refuse(w, r, err)
				return
			}
			defer release()
		}
		next.ServeHTTP(w, r)
	})
}

// UploadOf is how much of a request's body may be in memory, unread.
func UploadOf(r *http.Request) int {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.Method == http.MethodConnect || httprelay.IsUpgrade(r.Header):
		return 0
	case r.ContentLength < 0 || r.ContentLength > httprelay.Window:
		return httprelay.Window
	}
	return int(r.ContentLength)
}
