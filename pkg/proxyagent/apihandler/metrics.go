package apihandler

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of the handler. Nil counts nothing.
type metrics struct {
	requestsRejected   prometheus.Counter
	servicesRejected   *prometheus.CounterVec
	identitiesRejected *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requestsRejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_requests_rejected_total",
			Help: "Requests to the agent's handler from a client that is not the proxy API.",
		}),
		servicesRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_service_requests_rejected_total",
			Help: "Requests for Services that the destination policy denied, by reason.",
		}, []string{"reason"}),
		identitiesRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_identities_rejected_total",
			Help: "Requests of the proxy API that were refused, by reason: owner (the owner's policy), hub-user (users of the hub are not let in), reserved (the user's name is reserved) or malformed.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.requestsRejected, m.servicesRejected, m.identitiesRejected)
	return m
}

func (m *metrics) rejectRequest() {
	if m != nil {
		m.requestsRejected.Inc()
	}
}

func (m *metrics) rejectService(reason string) {
	if m != nil {
		m.servicesRejected.WithLabelValues(reason).Inc()
	}
}

func (m *metrics) rejectIdentity(reason string) {
	if m != nil {
		m.identitiesRejected.WithLabelValues(reason).Inc()
	}
}
