package konnectivity

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/metrics"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// ObserveDial counts a dial in konnectivity's metrics.
func ObserveDial(elapsed time.Duration, err error) {
	switch carrier.CodeOf(err) {
	case 0:
		metrics.Metrics.ObserveDialLatency(elapsed)
	case carrier.NoAgent, carrier.NoSuchCluster, carrier.Draining:
		metrics.Metrics.ObserveDialFailure(metrics.DialFailureNoAgent)
	case carrier.Canceled:
		metrics.Metrics.ObserveDialFailure(metrics.DialFailureFrontendClose)
	case carrier.TimedOut:
		// As konnectivity counts: an agent whose target was silent has answered.
		reason := metrics.DialFailureErrorResponse
		if errors.Is(err, context.DeadlineExceeded) {
			reason = metrics.DialFailureBackendDialTimeout
		}
		metrics.Metrics.ObserveDialFailure(reason)
	default:
		metrics.Metrics.ObserveDialFailure(metrics.DialFailureErrorResponse)
	}
}

// Gatherer gathers konnectivity's metrics. It brings the count of backends up to date
// before: the agents with carriers, which others counts, are none of konnectivity's own.
func (s *Server) Gatherer(others func() int) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		n := s.Backends() + others()
		metrics.Metrics.SetBackendCountDeprecated(n)
		metrics.Metrics.SetTotalBackendCount(proxystrategies.ProxyStrategyDestHost, n)
		return prometheus.DefaultGatherer.Gather()
	})
}
