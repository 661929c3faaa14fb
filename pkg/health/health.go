package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const readHeaderTimeout = 10 * time.Second

// Options configure a Server.
type Options struct {
	// Address to listen on, host:port. Port 0 takes a free one, see Addr.
	Address string
	// Gatherer is what /metrics shows; nil means Prometheus's default one.
	Gatherer prometheus.Gatherer
}

// Check reports a problem, or nil. It must be quick and safe for concurrent
// use.
type Check func() error

// Server answers probes. Its methods are safe for concurrent use.
type Server struct {
	address  string
	mux      *http.ServeMux
	draining atomic.Bool

	mu    sync.RWMutex
	ready []namedCheck

	started chan struct{}
	addr    net.Addr // set before started is closed
}

type namedCheck struct {
	name  string
	check Check
}

// New makes a Server that is live, and ready until checks say otherwise.
func New(o Options) *Server {
	s := &Server{address: o.Address, mux: http.NewServeMux(), started: make(chan struct{})}
	gatherer := o.Gatherer
	if gatherer == nil {
		gatherer = prometheus.DefaultGatherer
	}
	s.AddReadyCheck("draining", func() error {
		if s.draining.Load() {
			return errors.New("the process is ending")
		}
		return nil
	})
	live := func() []namedCheck { return nil }
	s.mux.Handle("/livez", probe(live))
	s.mux.Handle("/healthz", probe(live))
	s.mux.Handle("/readyz", probe(s.readyChecks))
	s.mux.Handle("/ready", probe(s.readyChecks))
	s.mux.Handle("/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	return s
}

// AddReadyCheck adds a check that must pass for /readyz.
func (s *Server) AddReadyCheck(name string, check Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, namedCheck{name, check})
}

func (s *Server) readyChecks() []namedCheck {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ready
}

// Drain makes /readyz fail from now on. Liveness is not affected.
func (s *Server) Drain() { s.draining.Store(true) }

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Handler serves the probes and metrics, for processes that want them on a
// listener of their own.
func (s *Server) Handler() http.Handler { return s.mux }

// Started is closed once Run listens.
func (s *Server) Started() <-chan struct{} { return s.started }

// Addr is where Run listens. It is nil until Started is closed.
func (s *Server) Addr() net.Addr {
	select {
	case <-s.started:
		return s.addr
	default:
		return nil
	}
}

// Run listens and serves until ctx is done. It must be called once.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listening for probes on %q: %w", s.address, err)
	}
	s.addr = listener.Addr()
	close(s.started)
	return serve(ctx, listener, s.mux)
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	}
	return nil
}

func probe(checks func() []namedCheck) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var report strings.Builder
		failed := false
		for _, c := range checks() {
			if err := c.check(); err != nil {
				failed = true
				fmt.Fprintf(&report, "[-]%s failed: %v\n", c.name, err)
			} else {
				fmt.Fprintf(&report, "[+]%s ok\n", c.name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if failed {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if failed || r.URL.Query().Has("verbose") {
			_, _ = w.Write([]byte(report.String()))
			return
		}
		_, _ = w.Write([]byte("ok"))
	}
}

// Admin is the port for administrators that konnectivity's processes have:
// metrics, and profiles where they are asked for.
type Admin struct {
	Metrics http.Handler
	// Profiling serves /debug/pprof, ContentionProfiling also records what blocks.
	Profiling, ContentionProfiling bool
}

// Serve serves listener until ctx is done.
func (a Admin) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", a.Metrics)
	if a.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if a.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	return serve(ctx, listener, mux)
}
