package agentaddon

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var requestsRefused = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cluster_proxy_manager_csr_refused_total",
	Help: "Certificate signing requests of agents that were looked at and not approved.",
})

func init() { metrics.Registry.MustRegister(requestsRefused) }
