package filter

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// exposureInterval is how often open connections to Services are held against the
// list of exposed Services.
const exposureInterval = 4 * time.Second

// errUnexposed ends a request for a Service that the list does not have any more.
var errUnexposed = errors.New("the Service is not exposed any more")

// Exposure ends requests for Services that are taken off the list of exposed Services,
// whoever the caller is, and those without a credential if the list does not allow them any
// more: connections to a Service may last for days.
type Exposure struct {
	filters *Filters

	mu   sync.Mutex
	open map[*openService]struct{}
}

// openService is a request for a Service that is under way.
type openService struct {
	scope *scope.Scope
	end   context.CancelCauseFunc
}

// NewExposure returns an Exposure, whose Run ends requests.
func NewExposure(f *Filters) *Exposure {
	return &Exposure{filters: f, open: map[*openService]struct{}{}}
}

// WithExposure serves a request for a Service for as long as the Service is exposed.
func (e *Exposure) WithExposure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		if !rs.Target.ForService() {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		o := &openService{rs, cancel}
		e.mu.Lock()
		e.open[o] = struct{}{}
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.open, o)
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Run checks regularly until ctx is done.
func (e *Exposure) Run(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, e.check, exposureInterval)
	return nil
}

// check ends what is not exposed. A request counts once, however long its end takes.
func (e *Exposure) check(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for o := range e.open {
		if terms := e.filters.terms(o.scope); terms.Exposed && (terms.Anonymous || !o.scope.Anonymous()) {
			continue
		}
		delete(e.open, o)
		e.filters.Metrics.Withdrawn.WithLabelValues("not-exposed").Inc()
		o.end(errUnexposed)
		s := o.scope.Target.Service
		klog.FromContext(ctx).Info("A request ended, its Service is not exposed any more to who sent it", "cluster", o.scope.Target.Cluster, "service", s.Namespace+"/"+s.Service, "port", s.Port)
	}
}
