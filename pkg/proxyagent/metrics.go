package proxyagent

import (
	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
)

// agentMetrics are ours; konnectivity's are in Prometheus's default registry.
type agentMetrics struct {
	dialsRejected          *prometheus.CounterVec
	handshakeFailures      *prometheus.CounterVec
	exposedServicesInvalid prometheus.Gauge
}

func newAgentMetrics(registry prometheus.Registerer) *agentMetrics {
	m := &agentMetrics{
		dialsRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_dials_rejected_total",
			Help: "Dials that the destination policy denied, by reason.",
		}, []string{"reason"}),
		handshakeFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_tls_failures_total",
			Help: "TLS handshakes with proxy servers that failed, by reason: clock-skew, unknown-ca, certificate, closed or other.",
		}, []string{"reason"}),
		exposedServicesInvalid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_agent_exposed_services_invalid",
			Help: "1 while the list of exposed Services cannot be read and an older one is in force.",
		}),
	}
	registry.MustRegister(m.dialsRejected, m.handshakeFailures, m.exposedServicesInvalid)
	return m
}

// shownMetrics are those of /metrics for the hub, with the name of this pod.
func (a *Agent) shownMetrics() (prometheus.Gatherer, error) {
	collected := []prometheus.Collector{a.registry}
	if konnectivity, ok := prometheus.DefaultRegisterer.(prometheus.Collector); ok {
		collected = append(collected, konnectivity)
	}
	return apihandler.OfPod(a.options.PodName, collected...)
}
