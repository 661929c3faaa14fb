package filter

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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
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

// Revalidation asks the hub again, regularly, whether open streams would still be
// allowed. Streams of one caller to one cluster with one verb are one question,
// whatever their number.
//
// A question goes through the same filters as the request did, with the headers that
// it had: authentication, impersonation, authorization. So it has the same answer as
// a new request, and shares their caches.
type Revalidation struct {
	period time.Duration
	// filters ends in allowed.
	filters http.Handler
	// policies are asked about each stream by itself: they read more of a request than the hub.
	policies *Filters
	metrics  *metrics.Metrics

	mu      sync.Mutex
	Groups  map[[sha256.Size]byte]*streamGroup
	policed map[*policedStream]struct{}
}

// streamGroup is what streams with the same question have in common.
type streamGroup struct {
	key [sha256.Size]byte
	// asked is the first stream's request as it came.
	asked *http.Request
	scope scope.Scope
	user  string
	ends  map[*context.CancelCauseFunc]struct{}
}

// NewRevalidation returns nil if streams are not to be looked at again.
func NewRevalidation(f *Filters, period time.Duration) *Revalidation {
	if period <= 0 {
		return nil
	}
	return &Revalidation{
		period: period, policies: f, metrics: f.Metrics, Groups: map[[sha256.Size]byte]*streamGroup{}, policed: map[*policedStream]struct{}{},
		filters: scope.WithRequestInfo(f.WithAuthentication(f.WithImpersonation(f.WithAuthorization(http.HandlerFunc(allowed))), http.HandlerFunc(f.Unauthenticated))),
	}
}

// KeepAsked returns what a question needs of a request: who asks, in which words.
func KeepAsked(r *http.Request) *http.Request {
	return &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: r.Header.Clone(), TLS: r.TLS, RemoteAddr: r.RemoteAddr, RequestURI: r.RequestURI,
		Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor}
}

// WithRevalidation serves a stream for as long as its caller may have it. A caller whom
// the managed cluster knows, and the hub does not, is the cluster's business, but for policies.
func (v *Revalidation) WithRevalidation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		asked := rs.Asked
		if rs.Kind != scope.View { // a view's is for what is relayed, too
			rs.Asked = nil
		}
		if v == nil || asked == nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		if !rs.PassThrough {
			defer v.Join(asked, rs, &cancel)()
		}
		if rs.Kind == scope.Cluster { // a view's clusters join by themselves
			defer v.JoinPolicies(rs, cancel)()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Join adds a stream. end is called once its caller would be refused; leave must be
// called when the stream has ended.
func (v *Revalidation) Join(asked *http.Request, rs *scope.Scope, end *context.CancelCauseFunc) (leave func()) {
	key := QuestionOf(asked, rs)
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.Groups[key]
	if g == nil {
		g = &streamGroup{key: key, asked: asked, user: rs.User.GetName(), ends: map[*context.CancelCauseFunc]struct{}{},
			scope: scope.Scope{Kind: rs.Kind, Target: rs.Target, Group: rs.Group, Prefix: rs.Prefix, Host: rs.Host, Info: rs.Info, Inner: rs.Inner, Leaves: rs.Leaves, Long: rs.Long}}
		v.Groups[key] = g
	}
	g.ends[end] = struct{}{}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if delete(g.ends, end); len(g.ends) == 0 && v.Groups[key] == g {
			delete(v.Groups, key)
		}
	}
}

// QuestionOf is the same for requests that have the same answer: everything that
// says who asks, what for, and where.
func QuestionOf(asked *http.Request, rs *scope.Scope) (key [sha256.Size]byte) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%x %q %q %q %q %v", hubaccess.KeyOf(rs.User), rs.Group, rs.Info.Verb, rs.Target.Cluster, rs.Target.View, rs.Leaves)
	if rs.Kind == scope.Own {
		fmt.Fprintf(sum, " %q", rs.Info.Path)
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

// Run asks about all streams once in a period, until ctx is done. Policies do not wait for the hub.
func (v *Revalidation) Run(ctx context.Context) error {
	var policies sync.WaitGroup
	policies.Go(func() { wait.NonSlidingUntilWithContext(ctx, v.AskPolicies, v.period) })
	wait.NonSlidingUntilWithContext(ctx, v.askAll, v.period)
	policies.Wait()
	return nil
}

func (v *Revalidation) askAll(ctx context.Context) {
	v.mu.Lock()
	groups := slices.Collect(maps.Values(v.Groups))
	v.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(parallelRevalidations)
	for _, g := range groups {
		group.Go(func() error {
			if reason := v.Withdrawn(ctx, g); reason != "" {
				v.End(ctx, g, reason)
			}
			return nil
		})
	}
	_ = group.Wait() // it has no errors
}

// Withdrawn says why a group's streams must end, or nothing. No answer, and every
// answer but a refusal of the caller, changes nothing.
func (v *Revalidation) Withdrawn(ctx context.Context, g *streamGroup) (reason string) {
	ctx, cancel := context.WithTimeout(ctx, revalidationTimeout)
	defer cancel()
	defer func() {
		if broken := recover(); broken != nil && broken != http.ErrAbortHandler {
			panic(broken)
		}
	}()
	answer := &verdict{header: http.Header{}}
	rs := g.scope
	rs.Again = true
	asked := *g.asked
	asked.Header = g.asked.Header.Clone()
	v.filters.ServeHTTP(answer, asked.WithContext(context.WithValue(ctx, scope.Key{}, &rs)))
	switch {
	case answer.code == http.StatusUnauthorized || answer.code == http.StatusProxyAuthRequired || rs.PassThrough:
		return "unauthenticated"
	case answer.code == http.StatusForbidden,
		g.scope.Kind == scope.View && answer.code == http.StatusNotFound: // see authorizeView
		return "forbidden"
	case answer.code == http.StatusNoContent && rs.User.GetName() != g.user:
		return "unauthenticated" // the credential is another user's now
	}
	return ""
}

func (v *Revalidation) End(ctx context.Context, g *streamGroup, reason string) {
	// One may take longer to end than a period, and counts once.
	v.mu.Lock()
	ends := g.ends
	g.ends = nil
	if v.Groups[g.key] == g {
		delete(v.Groups, g.key)
	}
	v.mu.Unlock()
	if len(ends) == 0 {
		return
	}
	v.metrics.Withdrawn.WithLabelValues(reason).Add(float64(len(ends)))
	for end := range ends {
		(*end)(errWithdrawn[reason])
	}
	klog.FromContext(ctx).Info("Streams ended, their caller would be refused now", "user", g.user, "cluster", g.scope.Target.Cluster, "view", g.scope.Target.View, "reason", reason, "streams", len(ends))
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
