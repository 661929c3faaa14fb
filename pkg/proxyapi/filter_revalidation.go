package proxyapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

const (
	// parallelRevalidations bounds the questions to the hub.
	parallelRevalidations = 16
	// revalidationTimeout bounds one of them. One without an answer takes nothing
	// away.
	revalidationTimeout = 5 * time.Second
)

// errWithdrawn ends a stream whose caller would be refused now, by reason.
var errWithdrawn = map[string]error{
	"unauthenticated": errors.New("your access was revoked: the hub does not accept your credential any more"),
	"forbidden":       errors.New("your access was revoked: you have no right on the hub to this cluster or view any more"),
}

// revalidation asks the hub again, regularly, whether open streams would still be
// allowed. Streams of one caller to one cluster with one verb are one question,
// whatever their number.
//
// A question goes through the same filters as the request did, with the headers that
// it had: authentication, impersonation, authorization. So it has the same answer as
// a new request, and shares their caches.
type revalidation struct {
	period time.Duration
	// filters ends in allowed.
	filters http.Handler
	metrics *metrics

	mu     sync.Mutex
	groups map[[sha256.Size]byte]*streamGroup
}

// streamGroup is what streams with the same question have in common.
type streamGroup struct {
	key [sha256.Size]byte
	// asked is the first stream's request as it came.
	asked *http.Request
	scope requestScope
	user  string
	ends  map[*context.CancelCauseFunc]struct{}
}

// newRevalidation returns nil if streams are not to be looked at again.
func newRevalidation(f *requestFilters, period time.Duration) *revalidation {
	if period <= 0 {
		return nil
	}
	return &revalidation{
		period: period, metrics: f.metrics, groups: map[[sha256.Size]byte]*streamGroup{},
		filters: withRequestInfo(f.withAuthentication(f.withImpersonation(f.withAuthorization(http.HandlerFunc(allowed))), http.HandlerFunc(f.unauthenticated))),
	}
}

// keepAsked returns what a question needs of a request: who asks, in which words.
func keepAsked(r *http.Request) *http.Request {
	return &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: r.Header.Clone(), TLS: r.TLS, RemoteAddr: r.RemoteAddr, RequestURI: r.RequestURI,
		Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor}
}

// withRevalidation serves a stream for as long as its caller may have it. A caller whom
// the managed cluster knows, and the hub does not, is the cluster's business.
func (v *revalidation) withRevalidation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := scopeOf(r.Context())
		asked := scope.asked
		if scope.kind != viewScope { // a view's is for what is relayed, too
			scope.asked = nil
		}
		if v == nil || asked == nil || scope.passThrough {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer v.join(asked, scope, &cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// join adds a stream. end is called once its caller would be refused; leave must be
// called when the stream has ended.
func (v *revalidation) join(asked *http.Request, scope *requestScope, end *context.CancelCauseFunc) (leave func()) {
	key := questionOf(asked, scope)
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.groups[key]
	if g == nil {
		g = &streamGroup{key: key, asked: asked, user: scope.user.GetName(), ends: map[*context.CancelCauseFunc]struct{}{},
			scope: requestScope{kind: scope.kind, target: scope.target, group: scope.group, prefix: scope.prefix, host: scope.host, info: scope.info, inner: scope.inner, leaves: scope.leaves, long: scope.long}}
		v.groups[key] = g
	}
	g.ends[end] = struct{}{}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if delete(g.ends, end); len(g.ends) == 0 && v.groups[key] == g {
			delete(v.groups, key)
		}
	}
}

// questionOf is the same for requests that have the same answer: everything that
// says who asks, what for, and where.
func questionOf(asked *http.Request, scope *requestScope) (key [sha256.Size]byte) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%x %q %q %q %q %v", hubaccess.KeyOf(scope.user), scope.group, scope.info.Verb, scope.target.Cluster, scope.target.View, scope.leaves)
	if scope.kind == ownScope {
		fmt.Fprintf(sum, " %q", scope.info.Path)
	}
	if asked.TLS != nil && len(asked.TLS.PeerCertificates) > 0 {
		fmt.Fprintf(sum, " %q", asked.TLS.PeerCertificates[0].Raw)
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Header)) {
		// A front proxy's headers have names of the hub's choice; the user is what they said.
		if name == "Authorization" || name == "Sec-Websocket-Protocol" || strings.HasPrefix(name, "Impersonate-") {
			fmt.Fprintf(sum, " %q %q", name, asked.Header[name])
		}
	}
	sum.Sum(key[:0])
	return key
}

// run asks about all streams once in a period, until ctx is done.
func (v *revalidation) run(ctx context.Context) error {
	tick := time.NewTicker(v.period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		v.mu.Lock()
		groups := slices.Collect(maps.Values(v.groups))
		v.mu.Unlock()
		var group errgroup.Group
		group.SetLimit(parallelRevalidations)
		for _, g := range groups {
			group.Go(func() error {
				if reason := v.withdrawn(ctx, g); reason != "" {
					v.end(ctx, g, reason)
				}
				return nil
			})
		}
		_ = group.Wait() // it has no errors
	}
}

// withdrawn says why a group's streams must end, or nothing. No answer, and every
// answer but a refusal of the caller, changes nothing.
func (v *revalidation) withdrawn(ctx context.Context, g *streamGroup) (reason string) {
	ctx, cancel := context.WithTimeout(ctx, revalidationTimeout)
	defer cancel()
	defer func() {
		if broken := recover(); broken != nil && broken != http.ErrAbortHandler {
			panic(broken)
		}
	}()
	answer := &verdict{header: http.Header{}}
	scope := g.scope
	scope.again = true
	asked := *g.asked
	asked.Header = g.asked.Header.Clone()
	v.filters.ServeHTTP(answer, asked.WithContext(context.WithValue(ctx, scopeKey{}, &scope)))
	switch {
	case answer.code == http.StatusUnauthorized || answer.code == http.StatusProxyAuthRequired || scope.passThrough:
		return "unauthenticated"
	case answer.code == http.StatusForbidden,
		g.scope.kind == viewScope && answer.code == http.StatusNotFound: // see authorizeView
		return "forbidden"
	case answer.code == http.StatusNoContent && scope.user.GetName() != g.user:
		return "unauthenticated" // the credential is another user's now
	}
	return ""
}

func (v *revalidation) end(ctx context.Context, g *streamGroup, reason string) {
	// One may take longer to end than a period, and counts once.
	v.mu.Lock()
	ends := g.ends
	g.ends = nil
	if v.groups[g.key] == g {
		delete(v.groups, g.key)
	}
	v.mu.Unlock()
	if len(ends) == 0 {
		return
	}
	v.metrics.withdrawn.WithLabelValues(reason).Add(float64(len(ends)))
	for end := range ends {
		(*end)(errWithdrawn[reason])
	}
	klog.FromContext(ctx).Info("Streams ended, their caller would be refused now", "user", g.user, "cluster", g.scope.target.Cluster, "view", g.scope.target.View, "reason", reason, "streams", len(ends))
}

// allowed is where a request would go on.
func allowed(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// verdict is a response of which only the code is wanted.
type verdict struct {
	header http.Header
	code   int
}

func (v *verdict) Header() http.Header { return v.header }

func (v *verdict) WriteHeader(code int) {
	if v.code == 0 {
		v.code = code
	}
}

func (v *verdict) Write(p []byte) (int, error) {
	v.WriteHeader(http.StatusOK)
	return len(p), nil
}
