package apihandler

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var requestsDenied = promauto.NewCounter(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_requests_denied_total",
	Help: "Requests to the agent's handler from somebody who is not the proxy API.",
})
