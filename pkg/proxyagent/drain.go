package proxyagent

import (
	"context"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/health"
)

// lastAnswers is how long requests may take that come just before the end of a drain.
const lastAnswers = 3 * time.Second

// drain serves new dials for the minimum drain duration, and until no connection is left
// after that, or the drain timeout, which counts from there. Then it refuses new dials, which
// servers send to another agent, and returns when what came just before has ended too.
// Konnectivity's own drain has told the servers.
func (a *Agent) drain(serving context.Context) {
	logger := klog.FromContext(serving)
	logger.Info("Draining", "timeout", a.options.GracefulShutdownTimeout)
	a.health.Drain()
	a.conns.ending.Store(true)
	ctx, cancel := context.WithTimeout(serving, a.options.MinDrainDuration+a.options.GracefulShutdownTimeout)
	defer cancel()
	tunnels := a.conns.servers.Load()
	used := func() int { return tunnels.open() - a.conns.unused() }
	health.AwaitIdle(ctx, a.options.MinDrainDuration, used)
	tunnels.carriers.ending.Store(true)
	left := health.AwaitIdle(ctx, 0, used)
	if left > 0 && serving.Err() == nil {
		logger.Info("Ending connections that outlived the drain", "connections", tunnels.open())
	}
	if a.handler != nil {
		finish(serving, a.handler)
	}
}

// finish lets requests end that came just before the end of a drain. Their clients may have
// had an unused connection since it began, which no answer told to leave: it is told now, by
// GOAWAY, and what crosses that is sent again on another connection.
func finish(ctx context.Context, handler *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	_ = handler.Shutdown(ctx) // watches and upgrades do not end, and are cut
}
