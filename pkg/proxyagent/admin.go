package proxyagent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"
)

// runAdmin serves profiles, where they are asked for, until ctx is done.
// Metrics are where the probes are, and this port leads there, as
// konnectivity's does.
func (a *Agent) runAdmin(ctx context.Context) error {
	k := a.options.Konnectivity
	mux := http.NewServeMux()
	mux.Handle("/metrics", a.health.Handler())
	if k.EnableProfiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if k.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	address := net.JoinHostPort(k.AdminBindAddress, strconv.Itoa(k.AdminServerPort))
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for administrators on %q: %w", address, err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serving administrators: %w", err)
	}
	return nil
}
