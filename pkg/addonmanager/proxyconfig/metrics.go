package proxyconfig

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
)

// Metrics are those of a Reconciler. Nil shows nothing.
type Metrics struct {
	certificateExpiry *prometheus.GaugeVec
	rotationPhase     *prometheus.GaugeVec
	waitingClusters   *prometheus.GaugeVec
	servers           *prometheus.GaugeVec
}

// NewMetrics registers the metrics of a Reconciler.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		certificateExpiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_manager_certificate_expiry_timestamp_seconds",
			Help: "When a certificate on the hub ends, in Unix time, by the name of its Secret, and when the CAs do.",
		}, []string{"certificate"}),
		rotationPhase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_manager_ca_rotation_phase",
			Help: "1 for the phase that the rotation of a CA is in, 0 for the others.",
		}, []string{"ca", "phase"}),
		waitingClusters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_manager_ca_rotation_waiting_clusters",
			Help: "Clusters that have not moved to the new CA and keep the old one from being dropped.",
		}, []string{"ca"}),
		servers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_manager_proxy_servers",
			Help: "Proxy servers by state: wanted, and available of them.",
		}, []string{"state"}),
	}
	registry.MustRegister(m.certificateExpiry, m.rotationPhase, m.waitingClusters, m.servers)
	return m
}

func (m *Metrics) setExpiry(certificate string, expiry time.Time) {
	if m != nil {
		m.certificateExpiry.WithLabelValues(certificate).Set(float64(expiry.Unix()))
	}
}

func (m *Metrics) setRotation(ca certificates.CAName, rotation certificates.Rotation) {
	m.setExpiry(string(ca), rotation.Expiry)
	if m == nil {
		return
	}
	m.waitingClusters.WithLabelValues(string(ca)).Set(float64(len(rotation.Waiting)))
	for _, phase := range certificates.Phases {
		value := 0.0
		if phase == rotation.Phase {
			value = 1
		}
		m.rotationPhase.WithLabelValues(string(ca), string(phase)).Set(value)
	}
}

func (m *Metrics) setServers(wanted, available int32) {
	if m != nil {
		m.servers.WithLabelValues("wanted").Set(float64(wanted))
		m.servers.WithLabelValues("available").Set(float64(available))
	}
}
