package fleetindexer

import (
	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
)

// Kinds of changes.
const (
	changePut     = "put"
	changeGone    = "gone"
	changeRefused = "refused"
)

// metrics are the numbers of the process. None has the cluster as a label: which cluster is behind is
// in the store, with when it was heard.
type metrics struct {
	agentMetrics
	clusters                 *prometheus.GaugeVec
	rows, oldest, storeBytes prometheus.Gauge
	bytes, storeErrors       prometheus.Counter
	changes, ended           *prometheus.CounterVec
	answerMetrics
}

// answerMetrics are about requests of the proxy API.
type answerMetrics struct {
	requests, decisions *prometheus.CounterVec
	seconds             *prometheus.HistogramVec
}

// Sources of decisions.
const (
	decisionAsked      = "asked"
	decisionRemembered = "remembered"
	decisionStale      = "stale"
)

// agentMetrics are about connections to agents.
type agentMetrics struct {
	dials, tlsFailures          *prometheus.CounterVec
	connect                     prometheus.Histogram
	connections, pooledClusters prometheus.Gauge
}

// Reasons for which streams end.
const (
	endedAgain   = "again"
	endedRefused = "refused"
	endedStore   = "store"
	endedTaken   = "taken"
	endedAway    = "away"
	endedBroken  = "broken"
)

// States of clusters.
const (
	stateCurrent = "current"
	stateBehind  = "behind"
	stateRefused = "refused"
)

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		clusters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_index_clusters",
			Help: "Clusters that this replica indexes, by whether their rows were known to be current in the last 30 s: current, behind, or refused (by the agent or the cluster's owner).",
		}, []string{"state"}),
		rows: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_index_rows",
			Help: "Rows of the clusters that this replica indexes.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_index_oldest_cluster_seconds",
			Help: "How long ago the rows of the cluster that is furthest behind were last known to be current, of the clusters that this replica indexes, that were ever heard and do not refuse.",
		}),
		storeBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_index_store_bytes",
			Help: "Size of the store, which is looked at every minute.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_index_received_bytes_total",
			Help: "Bytes of the messages of agents, unpacked.",
		}),
		storeErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_index_store_errors_total",
			Help: "Reads and writes of the store that failed.",
		}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_index_changes_total",
			Help: "Rows that agents sent, by what became of them: put, gone, refused (too large, or more than a cluster may have).",
		}, []string{"change"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_index_streams_ended_total",
			Help: "Streams of rows that ended or did not begin, by reason: again (the agent wants to be asked anew), refused (by the agent or the cluster's owner), away (the cluster is), store (it failed), taken (another replica has claimed the cluster), broken.",
		}, []string{"reason"}),
		agentMetrics:  newAgentMetrics(registry),
		answerMetrics: newAnswerMetrics(registry),
	}
	for _, change := range []string{changePut, changeGone, changeRefused} {
		m.changes.WithLabelValues(change)
	}
	for _, reason := range []string{endedAgain, endedRefused, endedStore, endedTaken, endedAway, endedBroken} {
		m.ended.WithLabelValues(reason)
	}
	registry.MustRegister(m.clusters, m.rows, m.oldest, m.storeBytes, m.bytes, m.storeErrors, m.changes, m.ended)
	return m
}

func newAgentMetrics(registry prometheus.Registerer) agentMetrics {
	m := agentMetrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_index_tunnel_dials_total",
			Help: "Dials through the tunnel, by result.",
		}, []string{"result"}),
		tlsFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_index_agent_tls_failures_total",
			Help: "TLS handshakes with agents that failed, by reason: cluster (the certificate is not of the ManagedCluster that has the name now), clock-skew, unknown-ca, certificate, closed or other.",
		}, []string{"reason"}),
		connect: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "cluster_proxy_index_agent_connect_duration_seconds",
			Help:    "Time of a dial and the TLS handshake with the agent.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_index_agent_connections",
			Help: "Open connections to agents.",
		}),
		pooledClusters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_index_pooled_clusters",
			Help: "Clusters that have a place in the connection pool.",
		}),
	}
	registry.MustRegister(m.dials, m.tlsFailures, m.connect, m.connections, m.pooledClusters)
	return m
}

func newAnswerMetrics(registry prometheus.Registerer) answerMetrics {
	m := answerMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_index_requests_total",
			Help: "Requests of the proxy API, by kind and HTTP status code: tables (lists of one resource), search, count, or other, which also counts clients that are not the proxy API.",
		}, []string{"kind", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cluster_proxy_index_request_duration_seconds",
			Help:    "Time of requests of the proxy API, until their answers were sent, by kind.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 14),
		}, []string{"kind"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_index_decisions_total",
			Help: "Decisions of clusters on what users may list, by where they are from: asked (of the cluster), remembered (for 10 s), stale (of a cluster that is away).",
		}, []string{"source"}),
	}
	for _, source := range []string{decisionAsked, decisionRemembered, decisionStale} {
		m.decisions.WithLabelValues(source)
	}
	registry.MustRegister(m.requests, m.seconds, m.decisions)
	return m
}

// agents are those that package agentclient counts with.
func (m *agentMetrics) agents() agentclient.Metrics {
	return agentclient.Metrics{Dials: m.dials, HandshakeFailures: m.tlsFailures, Connect: m.connect, Connections: m.connections, Clusters: m.pooledClusters}
}
