package proxyapi

import (
	"fmt"
	"net/http"
	"sync"
)

// Bodies that one user, and one cluster, may have unread in this process, in each
// direction. HTTP/2 takes up to a httprelay.Window of a body before it is read.
const (
	unreadPerUser    = 128 << 20
	unreadPerCluster = 512 << 20
)

// limiter bounds how many requests are served at a time, by user and by
// cluster, so that neither takes all from the others. Requests without a natural
// end are counted apart, and so are the bytes of what may be unread.
type limiter struct {
	// all is the limit of all users together. 0 is none, in each of the three.
	all, perUser, perCluster int
	what                     string

	mu       sync.Mutex
	inFlight map[string]int
}

// unreadBytes is what a limiter counts that is not one of requests.
const unreadBytes = "bytes of bodies that are not read"

func newLimiter(what string, perUser, perCluster int) *limiter {
	return &limiter{what: what, perUser: perUser, perCluster: perCluster, inFlight: map[string]int{}}
}

// acquire counts n, or refuses it. The empty cluster is the proxy API itself, or a view,
// which have limits for users only. The caller calls release once.
func (l *limiter) acquire(user, cluster string, n int) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Names have no NUL, so they never meet.
	a, u := "all", "user\x00"+user
	if l.perUser > 0 && l.inFlight[u]+n > l.perUser {
		return nil, refusal(http.StatusTooManyRequests, fmt.Sprintf("user %q has %d %s open already: end some, or try again", user, l.perUser, l.what))
	}
	if l.all > 0 && l.inFlight[a]+n > l.all {
		return nil, refusal(http.StatusTooManyRequests, fmt.Sprintf("all users together have %d %s open already: try again", l.all, l.what))
	}
	if err := l.fits(cluster, n); err != nil {
		return nil, err
	}
	return l.hold(n, a, u, ofCluster(cluster)), nil
}

// acquireCluster is acquire for what counts for its user elsewhere.
func (l *limiter) acquireCluster(cluster string, n int) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fits(cluster, n); err != nil {
		return nil, err
	}
	return l.hold(n, ofCluster(cluster)), nil
}

func ofCluster(cluster string) string { return "cluster\x00" + cluster }

func (l *limiter) fits(cluster string, n int) error {
	if cluster != "" && l.perCluster > 0 && l.inFlight[ofCluster(cluster)]+n > l.perCluster {
		return refusal(http.StatusTooManyRequests, fmt.Sprintf("cluster %q has %d %s open already: try again", cluster, l.perCluster, l.what))
	}
	return nil
}

func (l *limiter) hold(n int, keys ...string) (release func()) {
	for _, key := range keys {
		l.inFlight[key] += n
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, key := range keys {
			if l.inFlight[key] -= n; l.inFlight[key] <= 0 {
				delete(l.inFlight, key)
			}
		}
	}
}
