package proxyagent

import (
	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
)

// agentMetrics are the agent's. Those that konnectivity's
// agent has as well have its names, and the help that its test suite compares.
type agentMetrics struct {
	servers                prometheus.Gauge
	serverConnections      prometheus.Gauge
	connections            prometheus.Gauge
	dialSeconds            prometheus.Histogram
	dialFailures           *prometheus.CounterVec
	dialsRejected          *prometheus.CounterVec
	handshakeFailures      *prometheus.CounterVec
	exposedServicesInvalid prometheus.Gauge
}

func newAgentMetrics(registry prometheus.Registerer) *agentMetrics {
	m := &agentMetrics{
		servers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "konnectivity_network_proxy_agent_known_server_count",
			Help: "Current number of servers agent is trying to connect to.",
		}),
		serverConnections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "konnectivity_network_proxy_agent_open_server_connections",
			Help: "Current number of open server connections.",
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "konnectivity_network_proxy_agent_open_endpoint_connections",
			Help: "Current number of open endpoint connections.",
		}),
		dialSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "konnectivity_network_proxy_agent_dial_duration_seconds",
			Help:    "How long targets took to accept a connection.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10, 30},
		}),
		dialFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "konnectivity_network_proxy_agent_endpoint_dial_failure_total",
			Help: "Number of failures dialing the remote endpoint, by reason (example: timeout).",
		}, []string{"reason"}),
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
			Help: "1 while the list of exposed Services has entries that are left out, or cannot be read and an older one is in force.",
		}),
	}
	registry.MustRegister(m.servers, m.serverConnections, m.connections, m.dialSeconds, m.dialFailures, m.dialsRejected, m.handshakeFailures, m.exposedServicesInvalid)
	return m
}

// shownMetrics are those of /metrics for the hub, with the name of this pod.
func shownMetrics(registry *prometheus.Registry, pod string) (prometheus.Gatherer, error) {
	collected := []prometheus.Collector{registry}
	if process, ok := prometheus.DefaultRegisterer.(prometheus.Collector); ok {
		collected = append(collected, process)
	}
	return apihandler.OfPod(pod, collected...)
}
