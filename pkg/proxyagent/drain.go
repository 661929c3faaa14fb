package proxyagent

import (
	"context"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/health"
)

// drain serves new dials for the minimal drain duration, and returns when nothing
// is carried any more after that, or at the drain timeout, which counts from there.
// The servers were told by konnectivity's own drain.
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
