package proxyapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

var agentTLSFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "cluster_proxy_api_agent_tls_failures_total",
	Help: "TLS handshakes with agents that failed, by reason: cluster (the certificate is not of the ManagedCluster that has the name now), clock-skew, unknown-ca, certificate, closed or other.",
}, []string{"reason"})

// noteAgentTLS says that an agent did not prove to be that of its cluster, or
// did not believe us. It is logged, because users can only be told in part.
func noteAgentTLS(cluster string, err error) *handshakeError {
	err = pki.Explain(err)
	reason := pki.HandshakeReason(err)
	agentTLSFailures.WithLabelValues(reason).Inc()
	klog.Background().Info("TLS with an agent failed", "cluster", cluster, "reason", reason, "err", err.Error())
	return &handshakeError{err}
}
