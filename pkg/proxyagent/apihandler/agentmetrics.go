package apihandler

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

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
