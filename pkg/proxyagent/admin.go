package proxyagent

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"open-cluster-management.io/cluster-proxy/pkg/health"
)

// runAdmin serves profiles, where they are asked for, until ctx is done.
// Metrics are where the probes are, and this port leads there, as
// konnectivity's does.
func (a *Agent) runAdmin(ctx context.Context) error {
	k := a.options.Konnectivity
	address := net.JoinHostPort(k.AdminBindAddress, strconv.Itoa(k.AdminServerPort))
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for administrators on %q: %w", address, err)
	}
	return health.Admin{
		Metrics: a.health.Handler(), Profiling: k.EnableProfiling, ContentionProfiling: k.EnableContentionProfiling,
	}.Serve(ctx, listener)
}
