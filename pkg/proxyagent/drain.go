package proxyagent

import (
	"context"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/health"
)

// drain serves new dials for the minimum drain duration, and returns when no connection
// is left after that, or at the drain timeout, which counts from there. Konnectivity's
// own drain has told the servers.
func (a *Agent) drain(serving context.Context) {
	logger := klog.FromContext(serving)
	logger.Info("Draining", "timeout", a.options.DrainTimeout)
	a.health.Drain()
	a.conns.ending.Store(true)
	ctx, cancel := context.WithTimeout(serving, a.options.MinDrainDuration+a.options.DrainTimeout)
	defer cancel()
	left := health.AwaitIdle(ctx, a.options.MinDrainDuration, func() int { return a.openConnections() - a.conns.unused() })
	if left > 0 && serving.Err() == nil {
		logger.Info("Ending connections that outlived the drain", "connections", a.openConnections())
	}
}
