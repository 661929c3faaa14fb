package proxyconfig

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	certificateExpiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cluster_proxy_manager_certificate_expiry_timestamp_seconds",
		Help: "When a certificate on the hub ends, in Unix time, by the name of its Secret, and when the CAs do.",
	}, []string{"certificate"})
	rotationPhase = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cluster_proxy_manager_ca_rotation_phase",
		Help: "1 for the phase that the rotation of a CA is in, 0 for the others.",
	}, []string{"ca", "phase"})
	waitingClusters = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cluster_proxy_manager_ca_rotation_waiting_clusters",
		Help: "Clusters that have not moved to the new CA and keep the old one from being dropped.",
	}, []string{"ca"})
)

func init() { metrics.Registry.MustRegister(certificateExpiry, rotationPhase, waitingClusters) }
