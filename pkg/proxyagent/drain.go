package proxyagent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// drain returns when nothing is carried any more and the minimum has passed, or
// at the drain timeout. The servers were told by konnectivity's own drain.
func (a *Agent) drain(serving context.Context) {
	klog.FromContext(serving).Info("Draining", "timeout", a.options.DrainTimeout)
	a.health.Drain()
	a.conns.ending.Store(true)
	began := time.Now()
	timeout := time.NewTimer(a.options.DrainTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if time.Since(began) >= a.options.MinDrainDuration && a.openConnections()-a.conns.unused() <= 0 {
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			klog.FromContext(serving).Info("Ending connections that outlived the drain", "connections", a.openConnections())
			return
		case <-serving.Done():
			return
		}
	}
}

// openConnections is how many connections to targets are open, on carriers and
// on konnectivity's streams.
func (a *Agent) openConnections() int { return a.openCarriers() + openOnStreams() }

// openOnStreams is what konnectivity's agent has open. Its metric, which counts
// connections on carriers too, is the only place where it says so.
func openOnStreams() int {
	onCarriers := onCarriers.Load()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return 0
	}
	for _, family := range families {
		if family.GetName() == "konnectivity_network_proxy_agent_open_endpoint_connections" && len(family.GetMetric()) > 0 {
			return max(int(family.GetMetric()[0].GetGauge().GetValue())-int(onCarriers), 0)
		}
	}
	return 0
}
