package apihandler

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var requestsDenied = promauto.NewCounter(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_requests_denied_total",
	Help: "Requests to the agent's handler from somebody who is not the proxy API.",
})

var servicesDenied = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_service_denied_total",
	Help: "Requests for Services that the destination policy denied, by reason.",
}, []string{"reason"})

var identitiesDenied = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "cluster_proxy_agent_identities_denied_total",
	Help: "Requests of the proxy API that were refused, by reason: the user's name is reserved, the owner's policy, or malformed.",
}, []string{"reason"})
