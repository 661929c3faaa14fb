package proxyagent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
)

// memory is the process's.
var memory = memlimit.Process()

var dialsDenied = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_dial_denied_total",
	Help: "Dials that the destination policy denied, by reason.",
}, []string{"reason"})

var handshakeFailures = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_tls_failures_total",
	Help: "TLS handshakes with proxy servers that failed, by reason: clock-skew, unknown-ca, certificate, closed or other.",
}, []string{"reason"})

var exposedListInvalid = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "cluster_proxy_agent_exposed_services_invalid",
	Help: "1 while the list of exposed Services cannot be read and an older one is in force.",
})
