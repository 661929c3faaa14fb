package scope

import (
	"fmt"
	"net/http"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Bodies that one user, one cluster, and one user at one cluster may have unread in this
// process, in each direction. HTTP/2 takes up to a httprelay.Window of a body before it is read.
const (
	UnreadPerUser    = 128 << 20
	UnreadPerCluster = 512 << 20
	UnreadPerPair    = 64 << 20
)

// Limiter bounds how many requests are served at a time, by user, by cluster, and by both, so
// that neither takes all from the others: a cluster that is slow costs a user of many clusters
// what one cluster may have of the user, and no more. Requests without a natural
// end are counted apart, and so are the bytes of what may be unread.
type Limiter struct {
	// All is the limit of all users together, and PerPair that of one user at one cluster. 0 is
	// none, in each of the four.
	All, PerUser, perCluster, PerPair int
	What                              string
	// Raises are what raises the limits; empty if nothing does.
	Raises Raises

	Mu       sync.Mutex
	InFlight map[string]int
}

// Raises name the flag or the chart's value of each limit.
type Raises struct{ All, PerUser, perCluster, perPair string }

// ByValues are the chart's values of the limits of a kind of request.
func ByValues(kind string) Raises {
	const value = "the chart's value proxyAPI.limits."
	return Raises{PerUser: value + kind + "PerUser", perCluster: value + kind + "PerCluster", perPair: value + kind + "PerUserAndCluster"}
}

// UnreadBytes is what a limiter counts that is not one of requests.
const UnreadBytes = "unread bytes of bodies"

// NewLimiter returns a limiter of what is called so in refusals.
func NewLimiter(what string, perUser, perCluster int) *Limiter {
	return &Limiter{What: what, PerUser: perUser, perCluster: perCluster, InFlight: map[string]int{}}
}

// WithPerPair limits one user at one cluster.
func (l *Limiter) WithPerPair(n int) *Limiter {
	l.PerPair = n
	return l
}

func (l *Limiter) RaisedBy(what Raises) *Limiter {
	l.Raises = what
	return l
}

// Acquire counts n, or refuses it. The empty cluster is the proxy API itself, or a view,
// which have limits for users only. The caller calls release once.
func (l *Limiter) Acquire(user, cluster string, n int) (release func(), err error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	// Names have no NUL, so they never meet.
	a, u := "all", "user\x00"+user
	if l.PerUser > 0 && l.InFlight[u]+n > l.PerUser {
		return nil, status.New(http.StatusTooManyRequests, l.says(fmt.Sprintf("user %q has", user), "one user", l.PerUser, "end some, or try again", l.Raises.PerUser))
	}
	if l.All > 0 && l.InFlight[a]+n > l.All {
		return nil, status.New(http.StatusTooManyRequests, l.says("all users together have", "they", l.All, "try again", l.Raises.All))
	}
	if err := l.fits(user, cluster, n); err != nil {
		return nil, err
	}
	return l.hold(n, a, u, OfCluster(cluster), pairOf(user, cluster)), nil
}

// AcquireAt is Acquire for what counts for its user elsewhere: it counts for the cluster, and for
// the user there.
func (l *Limiter) AcquireAt(user, cluster string, n int) (release func(), err error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if err := l.fits(user, cluster, n); err != nil {
		return nil, err
	}
	return l.hold(n, OfCluster(cluster), pairOf(user, cluster)), nil
}

func OfCluster(cluster string) string { return "cluster\x00" + cluster }

func pairOf(user, cluster string) string { return "pair\x00" + user + "\x00" + cluster }

// fits refuses what is too much for a cluster, or of one user there.
func (l *Limiter) fits(user, cluster string, n int) error {
	switch {
	case cluster == "":
	case l.perCluster > 0 && l.InFlight[OfCluster(cluster)]+n > l.perCluster:
		return status.New(http.StatusTooManyRequests, l.says(fmt.Sprintf("cluster %q has", cluster), "one cluster", l.perCluster, "try again", l.Raises.perCluster))
	case l.PerPair > 0 && l.InFlight[pairOf(user, cluster)]+n > l.PerPair:
		return status.New(http.StatusTooManyRequests, l.says(fmt.Sprintf("user %q has at cluster %q", user, cluster), "one user at one cluster", l.PerPair, "end some, or try again", l.Raises.perPair))
	}
	return nil
}

// says names the limit, and what the user and an administrator can do.
func (l *Limiter) says(who, whose string, limit int, what, raises string) string {
	text := fmt.Sprintf("%s as many %s open as %s may have, %d: %s", who, l.What, whose, limit, what)
	if raises != "" {
		text += "; an administrator of the hub raises the limit with " + raises
	}
	return text
}

func (l *Limiter) hold(n int, keys ...string) (release func()) {
	for _, key := range keys {
		l.InFlight[key] += n
	}
	return func() {
		l.Mu.Lock()
		defer l.Mu.Unlock()
		for _, key := range keys {
			if l.InFlight[key] -= n; l.InFlight[key] <= 0 {
				delete(l.InFlight, key)
			}
		}
	}
}
