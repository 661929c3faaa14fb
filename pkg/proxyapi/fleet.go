package proxyapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// fleet answers requests for views that may go on. Package fleetview makes one answer of
// many; what it asks, it asks here.
type fleet struct {
	*requestFilters
	relay        *relay
	revalidation *revalidation
	handler      fleetHandler
}

// fleetHandler is package fleetview's Handler.
type fleetHandler interface {
	// Serve answers a request whose URL is as a managed kube-apiserver sees it.
	Serve(w http.ResponseWriter, r *http.Request, view fleetview.View)
}

// defaultClusterTimeout and defaultInformerTimeout are a FleetView's defaults, for objects that have
// none. The second one is less than the minute after which what is between a client and the view
// commonly cuts off a connection on which nothing comes.
const (
	defaultClusterTimeout  = 5 * time.Second
	defaultInformerTimeout = 45 * time.Second
)

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope := scopeOf(r.Context())
	request := &viewRequest{fleet: f, scope: scope, origin: r}
	defer func() { audit.AddAuditAnnotation(r.Context(), annotationPrefix+"clusters", request.sentTo.String()) }()
	inner := r.WithContext(r.Context())
	inner.URL = &url.URL{}
	if err := scope.target.Apply(inner.URL); err != nil {
		f.refuse(w, r, err)
		return
	}
	inner.RequestURI = inner.URL.RequestURI()
	if scope.inner.Verb == "watch" {
		watched, ctx, leave := f.sessions.watch(inner.Context(), w, scope)
		defer leave()
		w, inner = watched, inner.WithContext(ctx)
	}
	paced := newPacedWriter(w, scope, f.relay.answers, f.metrics)
	defer paced.end()
	view, err := request.view()
	if err != nil {
		f.refuse(w, r, refusal(http.StatusServiceUnavailable, err.Error()))
		return
	}
	f.handler.Serve(paced, inner, view)
}

// viewRequest is one request for a view.
type viewRequest struct {
	*fleet
	scope *requestScope
	// origin is the request as it came through the filters.
	origin *http.Request
	// sentTo are the clusters that were asked.
	sentTo names
	// single says that the view is of one cluster and can have no other, and timeout how long
	// a cluster may take to begin its answer.
	single  bool
	timeout time.Duration
}

// view is what package fleetview gets to know.
func (q *viewRequest) view() (fleetview.View, error) {
	view := fleetview.View{User: fmt.Sprintf("%x", hubaccess.KeyOf(q.scope.user)), Account: fmt.Sprintf("%x", sha256.Sum256([]byte(q.scope.user.GetName()))), Prefix: q.scope.prefix, Members: q.members, Relay: q.relayTo, Timeout: defaultClusterTimeout, InformerTimeout: defaultInformerTimeout}
	err := q.scope.view.describe(&view)
	q.single, q.timeout = view.Single, view.Timeout
	return view, err
}

// errNotAsked is the error of a request to a cluster of a view of which it could not be found
// out whether the user may make it.
var errNotAsked = refusal(http.StatusServiceUnavailable, "the hub's kube-apiserver could not be asked which clusters of the view you may reach: try again")

// notAsked is the error of a list that could not be made.
func notAsked(err error, what string) error {
	if errors.Is(err, hubaccess.ErrUnfinished) {
		return unavailable("the hub's kube-apiserver has not said in time " + what + ": try again, it is asked about the rest then")
	}
	return unavailable("the hub's kube-apiserver could not be asked " + what + ": try again")
}

// members are the clusters of the view, as it is now, that are served and that the user
// may reach with this request's verb. The others are not mentioned: that a cluster is
// away is known by asking it, which fails at once.
func (q *viewRequest) members(ctx context.Context) ([]fleetview.Member, []fleetview.Missing, error) {
	selected, of, err := q.scope.view.clusters()
	if err != nil {
		return nil, nil, unavailable(err.Error())
	}
	// The answer is kept for a while, and belongs to these clusters.
	allowed, late, err := q.authorizer.Reachable(ctx, q.scope.user, q.scope.rights(), of, func() []string { return slices.Clone(selected) })
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, notAsked(err, "which clusters of the view you may reach")
	}
	var members []fleetview.Member
	for _, cluster := range allowed {
		if _, ok := slices.BinarySearch(selected, cluster); !ok || q.clusters.Served(cluster) != nil {
			continue // it was a moment ago
		}
		members = append(members, &member{viewRequest: q, cluster: cluster, uid: q.clusters.UID(cluster), askAgain: late})
	}
	return members, nil, nil
}

// unavailable is a 503 for package fleetview.
func unavailable(message string) error {
	return &apierrors.StatusError{ErrStatus: newStatus(http.StatusServiceUnavailable, message)}
}

// relayTo sends a request to one cluster as the single-cluster endpoints do, with the
// limits of that cluster, for as long as the user has the right to it.
func (q *viewRequest) relayTo(w http.ResponseWriter, r *http.Request, to fleetview.Member) {
	m, ok := to.(*member)
	if !ok {
		q.refuse(w, r, refusal(http.StatusInternalServerError, "the cluster is not of this view: report this"))
		return
	}
	scope, err := m.scopeOf(r)
	r = r.WithContext(context.WithValue(r.Context(), scopeKey{}, scope))
	if err == nil {
		err = m.mayAlso(r.Context(), scope)
	}
	if err == nil {
		err = q.clusters.Served(m.cluster)
	}
	if scope.long && q.scope.asked == nil && q.revalidation != nil {
		err = errors.Join(err, errNoScope) // nothing could end it
	}
	if err != nil {
		q.refuse(w, r, err)
		return
	}
	parts := []held{{q.uploads, uploadOf(r)}, {q.requests, 1}}
	if scope.long {
		parts[1].limiter = q.streams
	}
	for _, part := range parts {
		release, err := part.limiter.acquireCluster(m.cluster, part.n)
		if err != nil {
			q.metrics.rejected.WithLabelValues("limit").Inc()
			q.refuse(w, r, err)
			return
		}
		defer release()
	}
	q.sentTo.add(m.cluster)
	q.metrics.viewClusters.WithLabelValues(relayed).Inc()
	if paced, ok := w.(*pacedWriter); ok {
		w = paced.ResponseWriter // the relay has its own
	}
	if q.single {
		var leave func()
		r, leave = q.asSingle(r, scope)
		defer leave()
	}
	q.revalidation.withRevalidation(q.relay).ServeHTTP(w, r)
}

// changedEvery is how often a watch of a view of a single cluster looks whether the view is
// still that.
const changedEvery = 2 * time.Second

// errViewChanged ends a watch of a view that is defined otherwise since.
var errViewChanged = errors.New("the FleetView has changed")

// asSingle prepares a request to the only cluster of a view: what reads has the view's
// timeout, and a watch ends when the view has changed. leave must be called at its end.
func (q *viewRequest) asSingle(r *http.Request, scope *requestScope) (_ *http.Request, leave func()) {
	isWatch := scope.inner.Verb == "watch"
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && (isWatch || !scope.long) {
		scope.beginWithin = q.timeout
	}
	if !isWatch {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	var following sync.WaitGroup
	following.Go(func() {
		ticker := time.NewTicker(changedEvery)
		defer ticker.Stop()
		for !q.scope.view.changed() {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		cancel(errViewChanged)
	})
	return r.WithContext(ctx), func() {
		cancel(nil)
		following.Wait()
	}
}

// maxNames is how many names of clusters are in an audit event.
const maxNames = 100

// names are those of clusters, for an audit event. The zero value is ready, and safe for
// concurrent use.
type names struct {
	mu  sync.Mutex
	all map[string]struct{}
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]struct{}{}
	}
	n.all[name] = struct{}{}
}

func (n *names) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	sorted := make([]string, 0, len(n.all))
	for name := range n.all {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	if more := len(sorted) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(sorted[:maxNames], ","), more)
	}
	return strings.Join(sorted, ",")
}
