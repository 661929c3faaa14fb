package proxyserver

import "github.com/prometheus/client_golang/prometheus"

// serverMetrics are ours; konnectivity's are in Prometheus's default registry.
type serverMetrics struct {
	registry        *prometheus.Registry
	agentsRejected  *prometheus.CounterVec
	clientsRejected *prometheus.CounterVec
}

func newServerMetrics() *serverMetrics {
	m := &serverMetrics{
		registry: prometheus.NewRegistry(),
		agentsRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_agent_identity_rejected_total",
			Help: "Agent streams refused because of who the agent is or claims to be.",
		}, []string{"reason"}),
		clientsRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_client_rejected_total",
			Help: "Clients refused because their certificate has no role.",
		}, []string{"reason"}),
	}
	m.registry.MustRegister(m.agentsRejected, m.clientsRejected)
	// Alerts need the zero.
	for _, reason := range []string{"certificate", "metadata", "identifiers"} {
		m.agentsRejected.WithLabelValues(reason)
	}
	m.clientsRejected.WithLabelValues("role")
	return m
}

func (m *serverMetrics) gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{prometheus.DefaultGatherer, m.registry}
}
