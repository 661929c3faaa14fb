package proxyserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Why a connection was ended, as a label.
const (
	endedCluster = "cluster"
	endedExpired = "expired"
	endedCA      = "ca"
)

// serverMetrics are ours; konnectivity's are in Prometheus's default registry.
type serverMetrics struct {
	registry          prometheus.Registerer
	agentsRejected    *prometheus.CounterVec
	clientsRejected   *prometheus.CounterVec
	sameName          prometheus.Counter
	dials             *prometheus.CounterVec
	peerDialsRejected prometheus.Counter
	handshakes        *prometheus.CounterVec
	tlsFailures       *prometheus.CounterVec
	// handshakesDropped are those that made room for others.
	handshakesDropped *prometheus.CounterVec
	// limited counts what was refused because a cluster had too many of it.
	limited        *prometheus.CounterVec
	ended          *prometheus.CounterVec
	clustersSynced prometheus.Gauge
}

func newServerMetrics(registry prometheus.Registerer) *serverMetrics {
	m := &serverMetrics{
		registry: registry,
		agentsRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_agents_rejected_total",
			Help: "Agents refused because of the agent's identity, proven or declared.",
		}, []string{"reason"}),
		clientsRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_clients_rejected_total",
			Help: "Clients refused because their certificate has no role.",
		}, []string{"reason"}),
		sameName: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_server_agent_id_conflicts_total",
			Help: "Agents whose ID is that of an agent of another cluster. They gain nothing, because what an agent may serve follows from its certificate.",
		}),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_dials_total",
			Help: "Dials served with carriers, by what they were sent to (agent, or peer that has one) and how they ended.",
		}, []string{"via", "result"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_tls_handshakes_total",
			Help: "TLS handshakes on both ports, by how they ended: full, resumed or failed.",
		}, []string{"result"}),
		tlsFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_server_tls_failures_total",
			Help: "TLS handshakes that failed, by reason: clock-skew, unknown-ca, certificate, closed or other.",
		}, []string{"reason"}),
	}
	m.handshakesDropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cluster_proxy_server_tls_handshakes_dropped_total",
		Help: "Connections closed before their TLS handshake was complete because there were too many such connections: from one source, or from all.",
	}, []string{"reason"})
	m.limited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cluster_proxy_server_cluster_limits_total",
		Help: "Refusals because the agents of one cluster together, or one agent, had too many: agents (sessions), control sessions (streams), carriers or idle carriers.",
	}, []string{"limit"})
	m.ended = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cluster_proxy_server_connections_ended_total",
		Help: "Connections of agents and clients that were ended because the peer would not be let in any more, by reason: cluster (it may not be served, or is another one of that name), expired (certificate), ca (not trusted any more).",
	}, []string{"reason"})
	m.clustersSynced = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cluster_proxy_server_clusters_synced",
		Help: "1 once the hub has said which clusters may be served (--watch-managed-clusters). Until then certificates alone decide.",
	})
	m.registry.MustRegister(m.tlsFailures, m.handshakesDropped, m.limited, m.ended, m.clustersSynced)
	m.registry.MustRegister(m.agentsRejected, m.sameName, m.clientsRejected, m.dials, m.handshakes)
	m.peerDialsRejected = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cluster_proxy_server_peer_dials_rejected_total",
		Help: "Dials that a peer was asked for and had no agent for: of clusters that have none at all, or have one that came or went in that moment.",
	})
	m.registry.MustRegister(m.peerDialsRejected)
	m.startAtZero()
	return m
}

// startAtZero makes the series of all labels: alerts need the zero.
func (m *serverMetrics) startAtZero() {
	for _, reason := range []string{"certificate", endedCluster, "metadata", "identifiers"} {
		m.agentsRejected.WithLabelValues(reason)
	}
	m.clientsRejected.WithLabelValues("role")
	for _, result := range []string{"full", "resumed", "failed"} {
		m.handshakes.WithLabelValues(result)
	}
	for _, reason := range []string{"source", "all"} {
		m.handshakesDropped.WithLabelValues(reason)
	}
	for _, limit := range []string{"sessions", "streams", "carriers", "idle carriers"} {
		m.limited.WithLabelValues(limit)
	}
	for _, reason := range []string{endedCluster, endedExpired, endedCA} {
		m.ended.WithLabelValues(reason)
	}
	for _, reason := range []string{pki.ReasonClockSkew, pki.ReasonUnknownCA, pki.ReasonCertificate} {
		m.tlsFailures.WithLabelValues(reason)
	}
}

// clusterAgents shows how many agents each cluster has here. It asks the registry when metrics are
// read. A GaugeVec that is set when agents come and go, while the registry is locked, stops the
// server: with more than 1,000 series client_golang holds the GaugeVec's lock while it waits for
// the other metrics to be read, and some of those wait for the registry.
type clusterAgents struct{ registry *agentRegistry }

// gauge belongs to one scrape, so that its lock is nobody else's.
func (c clusterAgents) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cluster_proxy_server_cluster_agents",
		Help: "Agents of a cluster that are connected to this proxy server. A cluster without any has no series; nor has any without --cluster-metrics, which is not set in PortForward mode.",
	}, []string{"managed_cluster"})
}

// Describe implements prometheus.Collector.
func (c clusterAgents) Describe(descs chan<- *prometheus.Desc) { c.gauge().Describe(descs) }

// Collect implements prometheus.Collector.
func (c clusterAgents) Collect(metrics chan<- prometheus.Metric) {
	gauge := c.gauge()
	for cluster, n := range c.registry.countByCluster() {
		gauge.WithLabelValues(cluster).Set(float64(n))
	}
	gauge.Collect(metrics)
}

// watchAgents shows how many agents are connected.
func (m *serverMetrics) watchAgents(a *agentRegistry, backends func() int) {
	for speaks, count := range map[string]func() int{"carriers": a.count, "streams": backends} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "cluster_proxy_server_agents",
			Help:        "Agents that are connected, by what their connections use: carriers, or streams of konnectivity's agents.",
			ConstLabels: prometheus.Labels{"speaks": speaks},
		}, func() float64 { return float64(count()) }))
	}
}

// watchCarriers shows how many carriers there are on one side of the server.
func (m *serverMetrics) watchCarriers(side string, stats func() pool.Stats) {
	for state, count := range map[string]func(pool.Stats) int{
		"idle":   func(s pool.Stats) int { return s.Idle },
		"in use": func(s pool.Stats) int { return s.InUse },
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "cluster_proxy_server_carriers",
			Help:        "Carriers by the side that is connected and whether they carry a connection.",
			ConstLabels: prometheus.Labels{"side": side, "state": state},
		}, func() float64 { return float64(count(stats())) }))
	}
}
