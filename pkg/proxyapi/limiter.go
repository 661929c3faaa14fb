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
	// raises are what raises the limits; empty if nothing does.
	raises raises

	mu       sync.Mutex
	inFlight map[string]int
}

// raises name the flag or the chart's value of each limit.
type raises struct{ all, perUser, perCluster string }

// byValues are the chart's values of the limits of a kind of request.
func byValues(kind string) raises {
	const value = "the chart's value proxyAPI.limits."
	return raises{perUser: value + kind + "PerUser", perCluster: value + kind + "PerCluster"}
}

// unreadBytes is what a limiter counts that is not one of requests.
const unreadBytes = "unread bytes of bodies"

func newLimiter(what string, perUser, perCluster int) *limiter {
	return &limiter{what: what, perUser: perUser, perCluster: perCluster, inFlight: map[string]int{}}
}

func (l *limiter) raisedBy(what raises) *limiter {
	l.raises = what
	return l
}

// acquire counts n, or refuses it. The empty cluster is the proxy API itself, or a view,
// which have limits for users only. The caller calls release once.
func (l *limiter) acquire(user, cluster string, n int) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Names have no NUL, so they never meet.
	a, u := "all", "user\x00"+user
	if l.perUser > 0 && l.inFlight[u]+n > l.perUser {
		return nil, refusal(http.StatusTooManyRequests, l.says(fmt.Sprintf("user %q has", user), "one user", l.perUser, "end some, or try again", l.raises.perUser))
	}
	if l.all > 0 && l.inFlight[a]+n > l.all {
		return nil, refusal(http.StatusTooManyRequests, l.says("all users together have", "they", l.all, "try again", l.raises.all))
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
		return refusal(http.StatusTooManyRequests, l.says(fmt.Sprintf("cluster %q has", cluster), "one cluster", l.perCluster, "try again", l.raises.perCluster))
	}
	return nil
}

// says names the limit, and what the user and an administrator can do.
func (l *limiter) says(who, whose string, limit int, what, raises string) string {
	text := fmt.Sprintf("%s as many %s open as %s may have, %d: %s", who, l.what, whose, limit, what)
	if raises != "" {
		text += "; an administrator of the hub raises the limit with " + raises
	}
	return text
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
