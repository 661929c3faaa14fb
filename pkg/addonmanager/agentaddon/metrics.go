package agentaddon

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var requestsRefused = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cluster_proxy_manager_csr_refused_total",
	Help: "Certificate signing requests of agents that were looked at and not approved.",
})

var exposedServicesInvalid = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "cluster_proxy_manager_exposed_services_invalid",
	Help: "1 while the ConfigMap of exposed Services cannot be read and an older list is in force.",
})

func init() { metrics.Registry.MustRegister(requestsRefused, exposedServicesInvalid) }
