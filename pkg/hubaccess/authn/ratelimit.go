package authn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/fairqueue"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
)

// SourceRate is how many requests with unverified credentials one source may send in
// a second, and SourceBurst how many at once.
const SourceRate, SourceBurst = 20, 100

// A credential is unverified until it was good for something once. These are the
// limits of requests with such credentials, per second and at once: of a source
// (an IPv4 address, an IPv6 /64), of a network (/16, /40), and of all.
var (
	sourceLimit  = limit{SourceRate, SourceBurst}
	networkLimit = limit{40, 200}
	allLimit     = limit{100, 200}
)

const (
	// maxSources, maxCredentials and maxClasses bound what is remembered. A flood
	// that cycles through more sources than that meets the limits of networks and
	// of all.
	maxSources     = 4096
	maxCredentials = 16384
	maxClasses     = 64
	// maxPlaces bounds the credentials that are remembered of one cluster, which says itself which
	// are good there, and maxPlacesOfAll the clusters.
	maxPlaces, maxPlacesOfAll = 1024, 16384
	// refusalDelay is how long a refusal is held back, so that clients that retry at
	// once take little of the processor; maxHeld is for how many at a time, as each
	// holds memory.
	refusalDelay = 250 * time.Millisecond
	maxHeld      = 500
	// maxReviews is how many unverified credentials the hub is asked about at a time, and
	// maxWaiting how many wait for that, of one flow and of all.
	maxReviews                   = 32
	maxWaitingOfFlow, maxWaiting = 100, 1000
)

type limit struct {
	perSecond rate.Limit
	burst     int
}

// rateLimiter limits requests with unverified credentials, so that a flood of bad ones
// does not cost users with good ones: the hub and the clusters are asked about few.
//
// Each class of credentials of which the hub knew one has limits of its own; a class is
// the JWTs of one issuer and key. A flood of other credentials, from the same address or
// from many, takes nothing from a token that is new and good. A flood of tokens that
// copy the issuer and key of good ones does, but never from a token that was good
// before.
type rateLimiter struct {
	known  *lru.Cache // by credential, those that the hub knew
	places *lru.Cache // *lru.Cache by cluster, of credentials that it accepted
	held   chan struct{}
	queue  *fairqueue.Queue[flow]

	placing sync.Mutex // held to add to places

	mu       sync.Mutex
	classes  *lru.Cache // those of which the hub knew a credential
	limiters *lru.Cache // *rate.Limiter by flow
	all      *lru.Cache // *rate.Limiter by class
}

// flow is what is limited together.
type flow struct {
	from  netip.Prefix
	class string
}

func newRateLimiter() *rateLimiter {
	return &rateLimiter{known: lru.New(maxCredentials), places: lru.New(maxPlacesOfAll), held: make(chan struct{}, maxHeld), queue: fairqueue.New[flow](maxReviews, maxWaitingOfFlow, maxWaiting),
		classes: lru.New(maxClasses), limiters: lru.New(2 * maxSources), all: lru.New(maxClasses + 1)}
}

// admit reports whether a request from address to a cluster may go on with a credential,
// which may be empty, of a class.
func (l *rateLimiter) admit(credential, cluster, class, address string) bool {
	if l.knows(credential, cluster) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	class = l.proven(class)
	source, network := sourceOf(address)
	return allow(l.limiters, flow{source, class}, sourceLimit) && allow(l.limiters, flow{network, class}, networkLimit) && allow(l.all, class, allLimit)
}

// proven returns a class if the hub knew a credential of it, or else the class of
// all others.
func (l *rateLimiter) proven(class string) string {
	if _, ok := l.classes.Get(class); !ok {
		return ""
	}
	return class
}

func allow(limiters *lru.Cache, key lru.Key, by limit) bool {
	limiter, ok := limiters.Get(key)
	if !ok {
		limiter = rate.NewLimiter(by.perSecond, by.burst)
		limiters.Add(key, limiter)
	}
	return limiter.(*rate.Limiter).Allow()
}

// knows reports whether a credential was good on the hub, or at the cluster that is asked for. A
// credential that one cluster accepts means nothing at another one.
func (l *rateLimiter) knows(credential, cluster string) bool {
	if credential == "" {
		return false
	}
	_, ok := l.known.Get(credential)
	return ok || l.goodAt(credential, cluster)
}

// sourceOf is what one sender has of addresses, and what one network has. Text that
// is no address has none of either.
func sourceOf(address string) (source, network netip.Prefix) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, netip.Prefix{}
	}
	ip = ip.Unmap().WithZone("")
	bits, wide := 32, 16
	if ip.Is6() {
		bits, wide = 64, 40
	}
	source, _ = ip.Prefix(bits)
	network, _ = ip.Prefix(wide)
	return source, network
}

// classOf is the issuer and key ID of a JWT, which is not verified; empty for
// other tokens.
func classOf(token string) string {
	var header struct {
		KeyID string `json:"kid"`
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || !decodePart(parts[0], &header) || !decodePart(parts[1], &claims) || claims.Issuer == "" || len(claims.Issuer)+len(header.KeyID) > 1024 {
		return ""
	}
	return claims.Issuer + "\x00" + header.KeyID
}

// decodePart reads JSON of a JWT.
func decodePart(part string, into any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(raw, into) == nil
}

// holdBack waits before a request is refused that was not admitted.
func (l *rateLimiter) holdBack(ctx context.Context) {
	select {
	case l.held <- struct{}{}:
	default:
		return
	}
	defer func() { <-l.held }()
	timer := time.NewTimer(refusalDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// wait waits until the hub may be asked about a credential.
func (l *rateLimiter) wait(ctx context.Context, class, address string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, outage.ReviewTimeout)
	defer cancel()
	source, _ := sourceOf(address)
	return l.queue.Acquire(ctx, flow{source, l.proven(class)})
}

// verified remembers a credential that the hub knew, and its class.
func (l *rateLimiter) verified(credential, class string) {
	if credential != "" {
		l.known.Add(credential, struct{}{})
	}
	if class != "" {
		l.classes.Add(class, struct{}{})
	}
}

// trust remembers a credential that a cluster accepted.
func (l *rateLimiter) trust(credential, cluster string) {
	if credential == "" {
		return
	}
	l.placing.Lock()
	defer l.placing.Unlock()
	there, ok := l.places.Get(cluster)
	if !ok {
		there = lru.New(maxPlaces)
		l.places.Add(cluster, there)
	}
	there.(*lru.Cache).Add(credential, struct{}{})
}

// goodAt reports whether a cluster accepted a credential.
func (l *rateLimiter) goodAt(credential, cluster string) bool {
	there, ok := l.places.Get(cluster)
	if ok {
		_, ok = there.(*lru.Cache).Get(credential)
	}
	return ok
}

// forget is for a credential that a cluster does not accept any more.
func (l *rateLimiter) forget(credential, cluster string) {
	if there, ok := l.places.Get(cluster); ok {
		there.(*lru.Cache).Remove(credential)
	}
}
