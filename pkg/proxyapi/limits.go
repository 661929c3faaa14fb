package proxyapi

import (
	"fmt"
	"net/http"
	"sync"
)

// limiter bounds how many requests are served at a time, by user and by
// cluster, so that neither takes all from the others. Requests without a natural
// end are counted apart.
type limiter struct {
	perUser, perCluster int
	what                string

	mu       sync.Mutex
	inFlight map[string]int
}

func newLimiter(what string, perUser, perCluster int) *limiter {
	return &limiter{what: what, perUser: perUser, perCluster: perCluster, inFlight: map[string]int{}}
}

// acquire counts a request, or refuses it. The empty cluster is the proxy API
// itself, which has limits for users only. The caller calls release once.
func (l *limiter) acquire(user, cluster string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Names have no NUL, so the two never meet.
	u, c := "user\x00"+user, "cluster\x00"+cluster
	if l.perUser > 0 && l.inFlight[u] >= l.perUser {
		return nil, &problem{http.StatusTooManyRequests, fmt.Sprintf("user %q has %d %s open already: end some, or try again", user, l.perUser, l.what)}
	}
	if cluster != "" && l.perCluster > 0 && l.inFlight[c] >= l.perCluster {
		return nil, &problem{http.StatusTooManyRequests, fmt.Sprintf("cluster %q has %d %s open already: try again", cluster, l.perCluster, l.what)}
	}
	l.inFlight[u]++
	l.inFlight[c]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, key := range []string{u, c} {
			if l.inFlight[key]--; l.inFlight[key] <= 0 {
				delete(l.inFlight, key)
			}
		}
	}, nil
}

// limited counts a request while it is served.
func (h *handler) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		who := userOf(r.Context()).GetName()
		if c.passThrough {
			// Everybody is anonymous there: the address tells them apart best.
			who = addressOf(r)
		}
		limits := h.requests
		if c.long {
			limits = h.streams
		}
		release, err := limits.acquire(who, c.target.Cluster)
		if err != nil {
			h.metrics.denied.WithLabelValues("limit").Inc()
			h.refuse(w, r, err)
			return
		}
		defer release()
		next.ServeHTTP(w, r)
	})
}
