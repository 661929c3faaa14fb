package apihandler

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of the handler. Nil counts nothing.
type metrics struct {
	requestsDenied   prometheus.Counter
	servicesDenied   *prometheus.CounterVec
	identitiesDenied *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requestsDenied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_requests_denied_total",
			Help: "Requests to the agent's handler from a client that is not the proxy API.",
		}),
		servicesDenied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_service_denied_total",
			Help: "Requests for Services that the destination policy denied, by reason.",
		}, []string{"reason"}),
		identitiesDenied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_identities_denied_total",
			Help: "Requests of the proxy API that were refused, by reason: owner (the owner's policy), hub-user (users of the hub are not let in), reserved (the user's name is reserved) or malformed.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.requestsDenied, m.servicesDenied, m.identitiesDenied)
	return m
}

func (m *metrics) denyRequest() {
	if m != nil {
		m.requestsDenied.Inc()
	}
}

func (m *metrics) denyService(reason string) {
	if m != nil {
		m.servicesDenied.WithLabelValues(reason).Inc()
	}
}

func (m *metrics) denyIdentity(reason string) {
	if m != nil {
		m.identitiesDenied.WithLabelValues(reason).Inc()
	}
}
