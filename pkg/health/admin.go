package health

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
)

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
