package proxyagent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var dialsDenied = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_dial_denied_total",
	Help: "Dials that the destination policy denied, by reason.",
}, []string{"reason"})
