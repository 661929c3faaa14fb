package proxyapi

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
)

// A credential is unverified until it was good for something once. These are the
// limits of requests with such credentials, per second and at once: of a source
// (an IPv4 address, an IPv6 /64), of a network (/16, /40), and of all.
var (
	sourceLimit  = limit{20, 100}
	networkLimit = limit{40, 200}
	allLimit     = limit{100, 200}
)

const (
	// maxSources, maxCredentials and maxClasses bound what is remembered. Who
	// cycles through more sources than that meets the limits of networks and of
	// all.
	maxSources     = 4096
	maxCredentials = 16384
	maxClasses     = 64
	// refusalDelay is how long a refusal is held back, so that those who ask
	// again as soon as they are refused take little of the processor; maxHeld is
	// for how many at a time, as each holds memory.
	refusalDelay = 250 * time.Millisecond
	maxHeld      = 500
)

type limit struct {
	perSecond rate.Limit
	burst     int
}

// strangers keeps a flood of bad credentials from costing those with good ones:
// the hub and the clusters are asked about few of them.
//
// The limits are apart for each class of credentials of which the hub knew one:
// JWTs of one issuer and key. So whoever floods with others, from the same
// address or from many, takes nothing from a token that is new and good. Somebody
// who copies issuer and key of good tokens does; those whose tokens were good
// before are not concerned.
type strangers struct {
	known  *lru.Cache // by credential
	places *lru.Cache // by place
	held   chan struct{}
	turns  *turns

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

func newStrangers() *strangers {
	return &strangers{known: lru.New(maxCredentials), places: lru.New(maxCredentials), held: make(chan struct{}, maxHeld), turns: newTurns(maxReviews),
		classes: lru.New(maxClasses), limiters: lru.New(2 * maxSources), all: lru.New(maxClasses + 1)}
}

// admit reports whether a request from address may go on with a credential,
// which may be empty, of a class.
func (s *strangers) admit(credential, class, address string) bool {
	if s.knows(credential) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	class = s.proven(class)
	source, network := sourceOf(address)
	return allow(s.limiters, flow{source, class}, sourceLimit) && allow(s.limiters, flow{network, class}, networkLimit) && allow(s.all, class, allLimit)
}

// proven returns a class if the hub knew a credential of it, or else the class of
// all others.
func (s *strangers) proven(class string) string {
	if _, ok := s.classes.Get(class); !ok {
		return ""
	}
	return class
}

func allow(limiters *lru.Cache, key lru.Key, l limit) bool {
	limiter, ok := limiters.Get(key)
	if !ok {
		limiter = rate.NewLimiter(l.perSecond, l.burst)
		limiters.Add(key, limiter)
	}
	return limiter.(*rate.Limiter).Allow()
}

// knows reports whether a credential was good for something.
func (s *strangers) knows(credential string) bool {
	if credential == "" {
		return false
	}
	_, ok := s.known.Get(credential)
	return ok
}

// sourceOf is what one sender has of addresses, and what one network has. What is
// not an address has none of either.
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

// classOf is the issuer and key ID of a JWT, which nobody has verified; empty for
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
func (s *strangers) holdBack(ctx context.Context) {
	select {
	case s.held <- struct{}{}:
	default:
		return
	}
	defer func() { <-s.held }()
	timer := time.NewTimer(refusalDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// turn waits for a turn to ask the hub about a credential.
func (s *strangers) turn(ctx context.Context, class, address string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	source, _ := sourceOf(address)
	return s.turns.take(ctx, flow{source, s.proven(class)})
}

// verified remembers a credential that the hub knew, and its class.
func (s *strangers) verified(credential, class string) {
	s.trust(credential, "")
	if class != "" {
		s.classes.Add(class, struct{}{})
	}
}

// trust remembers a credential that was good for something: on the hub, or at a
// cluster if one is named.
func (s *strangers) trust(credential, cluster string) {
	if credential == "" {
		return
	}
	s.known.Add(credential, struct{}{})
	if cluster != "" {
		s.places.Add(place{credential, cluster}, struct{}{})
	}
}

// goodAt reports whether a cluster accepted a credential.
func (s *strangers) goodAt(credential, cluster string) bool {
	_, ok := s.places.Get(place{credential, cluster})
	return ok
}

// forget is for a known credential that a cluster does not accept any more.
func (s *strangers) forget(credential, cluster string) {
	s.known.Remove(credential)
	s.places.Remove(place{credential, cluster})
}

// place is a credential at a cluster.
type place struct{ credential, cluster string }
