package apihandler

import (
	"fmt"
	"net/http"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

const (
	// maxExtraKeys bounds the label key of a metric, and maxExtraKey the length of one.
	maxExtraKeys = 20
	maxExtraKey  = 100
	// otherKeys is the label of what is beyond.
	otherKeys = "(others)"
)

// metrics are the counters of the handler. Nil counts nothing.
type metrics struct {
	requestsRejected   prometheus.Counter
	servicesRejected   *prometheus.CounterVec
	identitiesRejected *prometheus.CounterVec
	extrasLeftOut      *prometheus.CounterVec

	mu        sync.Mutex
	extraKeys map[string]bool
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
			Help: "Requests of the proxy API that were refused, by reason: owner (the owner's policy), hub-user (users of the hub are not let in), reserved (the user's name is reserved, or an extra with scopes may not be asserted) or malformed.",
		}, []string{"reason"}),
		extrasLeftOut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_agent_user_extras_left_out_total",
			Help: "Extras of users that the agent did not assert, by key: the customized variable extraKeys of the AddOnDeploymentConfig does not list them.",
		}, []string{"key"}),
		extraKeys: map[string]bool{},
	}
	registry.MustRegister(m.requestsRejected, m.servicesRejected, m.identitiesRejected, m.extrasLeftOut)
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

// leaveOutExtra counts by key as long as there are few: users may choose keys.
func (m *metrics) leaveOutExtra(key string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	if !m.extraKeys[key] && (len(m.extraKeys) >= maxExtraKeys || len(key) > maxExtraKey || !utf8.ValidString(key)) {
		key = otherKeys
	} else {
		m.extraKeys[key] = true
	}
	m.mu.Unlock()
	m.extrasLeftOut.WithLabelValues(key).Inc()
}

// Metrics are those of the agent.
type Metrics struct {
	// Registry gets the metrics of the handler.
	Registry prometheus.Registerer
	// Agent is what the hub gets to see of the agent's metrics.
	Agent prometheus.Gatherer
}

// OfPod returns collected metrics with the label pod. A request gets to any agent of the
// cluster: without the label, the counters of several would be taken for one that jumps. An
// empty pod adds nothing.
func OfPod(pod string, collected ...prometheus.Collector) (prometheus.Gatherer, error) {
	registry := prometheus.NewRegistry()
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"pod": pod}, registry)
	for _, c := range collected {
		if err := labelled.Register(c); err != nil {
			return nil, fmt.Errorf("naming the pod in the agent's metrics: %w", err)
		}
	}
	return registry, nil
}

// forAgent answers requests for the agent itself, and sends all others to next. It comes after
// Access, which has asked the owner's policy and knows the user's headers to be well-formed.
func forAgent(m Metrics, next http.Handler) http.Handler {
	answer := promhttp.HandlerFor(m.Agent, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !agentapi.ForAgent(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		err := agentapi.CheckForAgentMetrics(r.Header)
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, err.Error())
		case r.Method != http.MethodGet || httprelay.IsUpgrade(r.Header):
			refuse(w, http.StatusMethodNotAllowed, "the agent's metrics can only be read: use GET without an upgrade")
		case !agentapi.Has(r.Header, agentapi.FrontProxy):
			// Nobody but the hub knows who may read them.
			refuse(w, http.StatusForbidden, "the agent's metrics are for users whom the hub knows")
		default:
			answer.ServeHTTP(w, r)
		}
	})
}
