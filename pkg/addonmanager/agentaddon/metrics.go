package agentaddon

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of an Addon. Nil counts nothing.
type Metrics struct {
	csrsRejected           prometheus.Counter
	exposedServicesInvalid prometheus.Gauge
}

// NewMetrics registers the metrics of an Addon.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		csrsRejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_manager_csrs_rejected_total",
			Help: "Certificate signing requests of agents that were looked at and not approved.",
		}),
		exposedServicesInvalid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_manager_exposed_services_invalid",
			Help: "1 while the ConfigMap of exposed Services has entries that are left out, or cannot be read and an older list is in force.",
		}),
	}
	registry.MustRegister(m.csrsRejected, m.exposedServicesInvalid)
	return m
}

func (m *Metrics) rejectCSR() {
	if m != nil {
		m.csrsRejected.Inc()
	}
}

func (m *Metrics) setExposedServicesInvalid(value float64) {
	if m != nil {
		m.exposedServicesInvalid.Set(value)
	}
}
