package proxyapi

import (
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// noteAgentTLS says that an agent did not prove to be that of its cluster, or
// did not believe us. It is logged, because users can only be told in part.
func (m *tunnelMetrics) noteAgentTLS(cluster string, err error) *handshakeError {
	err = pki.Explain(err)
	reason := pki.HandshakeReason(err)
	m.agentTLSFailures.WithLabelValues(reason).Inc()
	klog.Background().Info("TLS with an agent failed", "cluster", cluster, "reason", reason, "err", err.Error())
	return &handshakeError{err}
}
