package view

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/audit"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// defaultClusterTimeout and defaultInformerTimeout are a FleetView's defaults, for objects that have
// none. The second one is less than the minute after which what is between a client and the view
// commonly cuts off a connection on which nothing comes.
const (
	defaultClusterTimeout  = 5 * time.Second
	defaultInformerTimeout = 45 * time.Second
)

func (f *Fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rs := scope.Of(r.Context())
	request := &ViewRequest{Fleet: f, Scope: rs, origin: r}
	defer func() {
		audit.AddAuditAnnotation(r.Context(), scope.AnnotationPrefix+"clusters", request.sentTo.String())
		if asked := request.policies.String(); asked != "" {
			audit.AddAuditAnnotation(r.Context(), filter.PoliciesKey, asked)
		}
		if objections := request.objections.String(); objections != "" {
			audit.AddAuditAnnotation(r.Context(), filter.ObjectionsKey, objections)
		}
	}()
	inner := r.WithContext(r.Context())
	inner.URL = &url.URL{}
	if err := rs.Target.Apply(inner.URL); err != nil {
		f.Refuse(w, r, err)
		return
	}
	inner.RequestURI = inner.URL.RequestURI()
	if rs.Inner.Verb == "watch" {
		var leave func()
		w, inner, leave = f.watch(w, inner, rs)
		defer leave()
	}
	view, err := request.view()
	if err != nil {
		f.Refuse(w, r, status.New(http.StatusServiceUnavailable, err.Error()))
		return
	}
	if rs.Search {
		request.search(w, r, &view)
		return
	}
	if rs.Inner.Verb == "list" && rs.View.Indexed() {
		request.lists = newIndexedLists(r, f.Index, f.Held, &view)
		defer request.lists.end()
		w = &warningWriter{ResponseWriter: w, warnings: &request.lists.warnings}
	}
	paced := relay.NewPacedWriter(w, rs, f.Relay.Answers, f.Metrics)
	defer paced.End()
	f.Handler.Serve(paced, inner, view)
}

// view is what package fleetview gets to know.
func (q *ViewRequest) view() (fleet.View, error) {
	view := fleet.View{User: fmt.Sprintf("%x", hubaccess.KeyOf(q.Scope.User)), Account: fmt.Sprintf("%x", sha256.Sum256([]byte(q.Scope.User.GetName()))), Prefix: q.Scope.Prefix, Members: q.members, Relay: q.relayTo, Timeout: defaultClusterTimeout, InformerTimeout: defaultInformerTimeout}
	err := q.Scope.View.Describe(&view)
	q.single, q.timeout = view.Single, view.Timeout
	return view, err
}

// relayTo sends a request to one cluster as the single-cluster endpoints do, with the
// limits of that cluster and of the user there, for as long as the user has the right to it.
func (q *ViewRequest) relayTo(w http.ResponseWriter, r *http.Request, to fleet.Member) {
	m, ok := to.(*Member)
	if !ok {
		q.Refuse(w, r, status.New(http.StatusInternalServerError, "the cluster is not of this view: report this"))
		return
	}
	rs, err := m.scopeOf(r)
	r = r.WithContext(context.WithValue(r.Context(), scope.Key{}, rs))
	if err == nil {
		err = m.MayAlso(r.Context(), rs)
	}
	if err == nil {
		var decision accesspolicy.Decision
		decision, err = q.decide(rs)
		filter.WarnOfPolicies(w.Header(), &decision)
	}
	if err == nil {
		err = q.Clusters.Served(m.Cluster)
	}
	if rs.Long && q.Scope.Asked == nil && q.Revalidation != nil {
		err = errors.Join(err, scope.ErrNoScope) // nothing could end it
	}
	if err != nil {
		q.Refuse(w, r, err)
		return
	}
	parts := []filter.Held{{Limiter: q.Uploads, N: filter.UploadOf(r)}, {Limiter: q.Requests, N: 1}}
	if rs.Long {
		parts[1].Limiter = q.Streams
	}
	for _, part := range parts {
		release, err := part.Limiter.AcquireAt(rs.Holder, m.Cluster, part.N)
		if err != nil {
			q.Metrics.Rejected.WithLabelValues("limit").Inc()
			q.Refuse(w, r, err)
			return
		}
		defer release()
	}
	q.sentTo.Add(m.Cluster)
	q.Metrics.ViewClusters.WithLabelValues(metrics.Relayed).Inc()
	if paced, ok := w.(*relay.PacedWriter); ok {
		w = paced.ResponseWriter // the relay has its own
	}
	if q.single {
		var leave func()
		r, leave = q.asSingle(r, rs)
		defer leave()
	}
	q.Revalidation.WithRevalidation(q.Relay).ServeHTTP(w, r)
}

// changedEvery is how often a watch of a view of a single cluster looks whether the view is
// still that.
const changedEvery = 2 * time.Second

// asSingle prepares a request to the only cluster of a view: what reads has the view's
// timeout, and a watch ends when the view has changed. OpenAPI has no such timeout: a kube-apiserver
// composes the document anew for whoever asks first after a CustomResourceDefinition has changed, which
// takes it seconds. leave must be called at its end.
func (q *ViewRequest) asSingle(r *http.Request, rs *scope.Scope) (_ *http.Request, leave func()) {
	isWatch := rs.Inner.Verb == "watch"
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	if isRead && (isWatch || !rs.Long) && !strings.HasPrefix(rs.Inner.Path, "/openapi/") {
		rs.BeginWithin = q.timeout
	}
	if !isWatch {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	var following sync.WaitGroup
	following.Go(func() {
		changed := func(context.Context) (bool, error) { return q.Scope.View.Changed(), nil }
		if wait.PollUntilContextCancel(ctx, changedEvery, true, changed) == nil {
			cancel(relay.ErrViewChanged)
		}
	})
	return r.WithContext(ctx), func() {
		cancel(nil)
		following.Wait()
	}
}
