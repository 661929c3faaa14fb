// Package metrics has the numbers of the proxy API. Each package of a request's way counts
// with one value of it.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
)

// Metrics are the numbers of the proxy API. Those with the cluster as a label
// are few for each, because a hub has thousands, and go with the cluster.
type Metrics struct {
	requestMetrics
	viewMetrics
	tunnelMetrics
	hubMetrics
	recordingMetrics
}

// New returns metrics that are registered with a registry.
func New(registry prometheus.Registerer) *Metrics {
	return &Metrics{newRequestMetrics(registry), newViewMetrics(registry), newTunnelMetrics(registry), newHubMetrics(registry), newRecordingMetrics(registry)}
}

// requestMetrics are about users' connections and requests.
type requestMetrics struct {
	Requests          *prometheus.CounterVec
	Latency           *prometheus.HistogramVec
	Seconds           *prometheus.CounterVec
	InFlight          *prometheus.GaugeVec
	Streams           *prometheus.GaugeVec
	Rejected          *prometheus.CounterVec
	Withdrawn         *prometheus.CounterVec
	PolicyObjections  *prometheus.CounterVec
	HandshakesDropped *prometheus.CounterVec // those that made room for others
}

func newRequestMetrics(registry prometheus.Registerer) requestMetrics {
	m := requestMetrics{
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_requests_total",
			Help: "Requests that ended, by cluster (empty for none), verb (metrics for scrapes of agents) and HTTP status; 499 means that the client went away; a status that API servers do not answer counts as its class, such as 4xx.",
		}, []string{"managed_cluster", "verb", "code"}),
		Latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cluster_proxy_api_request_duration_seconds",
			Help:    "Time from a request to its response's header.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"verb"}),
		Seconds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_request_seconds_total",
			Help: "Sum of the times from a request to its response's header, by cluster, of requests that ended.",
		}, []string{"managed_cluster"}),
		InFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_requests_in_flight",
			Help: "Requests being served; stream is what has no natural end.",
		}, []string{"kind"}),
		Streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_streams",
			Help: "Watches, logs, exec, attach, port-forward and connections to Services that are open, by cluster and verb.",
		}, []string{"managed_cluster", "verb"}),
		Rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_requests_rejected_total",
			Help: "Requests that were refused, by reason: authentication, managed-cluster (did not know the token), forbidden, policy (an AccessPolicy refuses it, or they were not read yet), user (cannot be asserted), limit, memory (most of the memory limit is used), unread (an answer was cut off because too much of that user is not read), peer (what is no replica of the proxy API, on the port for replicas).",
		}, []string{"reason"}),
		Withdrawn: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_streams_withdrawn_total",
			Help: "Streams that were ended because their caller would be refused now, by reason: unauthenticated, forbidden, policy (an AccessPolicy refuses it), not-exposed (the Service was taken off the list of exposed Services, or is not there any more for callers without a credential), ended (somebody has deleted the session), not-recorded (the session's recording has failed).",
		}, []string{"reason"}),
		PolicyObjections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_policy_objections_total",
			Help: "Requests to clusters that an AccessPolicy objected to, by policy, result (refused, warned, audited: the policy's mode) and reason: rule (one is not true), failed (one does not compile or cannot be evaluated), hidden (one reads what the request does not show, such as CONNECT).",
		}, []string{"policy", "result", "reason"}),
		HandshakesDropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_tls_handshakes_dropped_total",
			Help: "Connections closed before their TLS handshake was complete because there were too many such connections: from one source, or from all.",
		}, []string{"reason"}),
	}
	m.Rejected.WithLabelValues(RejectedPeer)
	for _, reason := range []string{"source", "all"} {
		m.HandshakesDropped.WithLabelValues(reason)
	}
	registry.MustRegister(m.Requests, m.Latency, m.Seconds, m.InFlight, m.Streams, m.Rejected, m.Withdrawn, m.PolicyObjections, m.HandshakesDropped)
	return m
}

// viewMetrics are about requests for views, which are among the others too.
type viewMetrics struct {
	ViewRequests  *prometheus.CounterVec
	ViewClusters  *prometheus.CounterVec
	ViewFirstByte prometheus.Histogram
	Peers         prometheus.Gauge
	Asked         *prometheus.CounterVec
}

func newViewMetrics(registry prometheus.Registerer) viewMetrics {
	m := viewMetrics{
		ViewRequests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_view_requests_total",
			Help: "Requests for fleet views that ended, by verb and HTTP status as in cluster_proxy_api_requests_total.",
		}, []string{"verb", "code"}),
		ViewClusters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_view_clusters_total",
			Help: "Requests of fleet views to clusters, by result: answered, slow (the answer did not begin within the view's timeout), failed (such as no agent is connected), indexed (the fleet index answered in the cluster's place), relayed (passed on as it is: logs, exec, attach, port-forward, proxy, all of a view of a single cluster).",
		}, []string{"result"}),
		ViewFirstByte: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "cluster_proxy_api_view_first_byte_seconds",
			Help:    "Time from a request for a fleet view to the first byte of its response's body.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		Peers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_peers",
			Help: "Other replicas of the proxy API that answer; they are greeted every 3 s.",
		}),
		Asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_view_versions_asked_total",
			Help: "resourceVersions of fleet views that the other replicas were asked for, by result: found, unknown (a client that wants to watch from there is answered 410 and lists again).",
		}, []string{"result"}),
	}
	for _, result := range []string{Answered, Slow, Failed, Indexed, Relayed} {
		m.ViewClusters.WithLabelValues(result)
	}
	for _, result := range []string{PositionFound, PositionUnknown} {
		m.Asked.WithLabelValues(result)
	}
	registry.MustRegister(m.ViewRequests, m.ViewClusters, m.ViewFirstByte, m.Peers, m.Asked)
	return m
}

// tunnelMetrics are about the way to the agents.
type tunnelMetrics struct {
	dials            *prometheus.CounterVec
	connect          prometheus.Histogram
	connections      prometheus.Gauge
	clusters         prometheus.Gauge
	agentTLSFailures *prometheus.CounterVec
	Reachable        prometheus.Gauge
}

func newTunnelMetrics(registry prometheus.Registerer) tunnelMetrics {
	m := tunnelMetrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_tunnel_dials_total",
			Help: "Dials through the tunnel, by result.",
		}, []string{"result"}),
		connect: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "cluster_proxy_api_agent_connect_duration_seconds",
			Help:    "Time of a dial and the TLS handshake with the agent.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_agent_connections",
			Help: "Open connections to agents.",
		}),
		clusters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_pooled_clusters",
			Help: "Clusters that have a place in the connection pool.",
		}),
		agentTLSFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_agent_tls_failures_total",
			Help: "TLS handshakes with agents that failed, by reason: cluster (the certificate is not of the ManagedCluster that has the name now), clock-skew, unknown-ca, certificate, closed or other.",
		}, []string{"reason"}),
		Reachable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_proxy_server_reachable",
			Help: "1 while a proxy server can be reached; it is tried every 10 s.",
		}),
	}
	registry.MustRegister(m.dials, m.connect, m.connections, m.clusters, m.agentTLSFailures, m.Reachable)
	return m
}

// hubMetrics are about the hub's kube-apiserver.
type hubMetrics struct {
	Outage      prometheus.Gauge
	PastAnswers prometheus.Counter
}

func newHubMetrics(registry prometheus.Registerer) hubMetrics {
	m := hubMetrics{
		Outage: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_hub_outage",
			Help: "1 while the hub's kube-apiserver cannot be asked.",
		}),
		PastAnswers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_api_hub_outage_answers_total",
			Help: "Questions about tokens and permissions that an earlier answer of the hub decided, because it could not be asked.",
		}),
	}
	registry.MustRegister(m.Outage, m.PastAnswers)
	return m
}

// recordingMetrics are about the recording of sessions.
type recordingMetrics struct {
	RecordingsFailed     *prometheus.CounterVec
	recordingsOpen       prometheus.Gauge
	recordingsStored     prometheus.Gauge
	recordingBytes       prometheus.Counter
	recordingLost        prometheus.Counter
	recordingsRemoved    *prometheus.CounterVec
	RecordingSetsUnknown prometheus.Gauge
}

func newRecordingMetrics(registry prometheus.Registerer) recordingMetrics {
	m := recordingMetrics{
		RecordingsFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_recordings_failed_total",
			Help: "Recordings of sessions that could not begin or could not go on, by what became of the session: rejected, ended, unrecorded (it went on), over (it had ended when the volume or the Service failed to keep its recording).",
		}, []string{"session"}),
		recordingsOpen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_recordings_open",
			Help: "Recordings of sessions that are being written.",
		}),
		recordingsStored: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_recordings_stored_bytes",
			Help: "Size of all recordings on the volume, those of the other replicas included if they share it; they are counted every 30 s. 0 if a Service gets them.",
		}),
		recordingBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_api_recording_bytes_total",
			Help: "Bytes written to recordings of sessions, or sent to the Service.",
		}),
		recordingLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_api_recording_lost_bytes_total",
			Help: "Bytes of recorded sessions that are not in their recordings, because the volume or the Service was too slow or has failed.",
		}),
		recordingsRemoved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_proxy_api_recordings_removed_total",
			Help: "Recordings that were removed, by reason: age, size (of all recordings, or of the volume).",
		}, []string{"reason"}),
		RecordingSetsUnknown: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_api_recording_unknown_sets",
			Help: "ManagedClusterSets whose sessions are to be recorded and of which it is not known which clusters they have, because they do not exist, have a selector that means nothing, or were not read yet. Sessions to all clusters are recorded meanwhile.",
		}),
	}
	for _, session := range []string{SessionRejected, SessionCut, SessionUnrecorded, SessionOver} {
		m.RecordingsFailed.WithLabelValues(session)
	}
	registry.MustRegister(m.RecordingsFailed, m.recordingsOpen, m.recordingsStored, m.recordingBytes, m.recordingLost, m.recordingsRemoved, m.RecordingSetsUnknown)
	return m
}

// Recordings are those that package recording counts with.
func (m *recordingMetrics) Recordings() recording.Metrics {
	return recording.Metrics{Open: m.recordingsOpen, Stored: m.recordingsStored, Written: m.recordingBytes, Lost: m.recordingLost, Removed: m.recordingsRemoved}
}

// Forget drops what is counted for a cluster that is gone.
func (m *requestMetrics) Forget(cluster string) {
	gone := prometheus.Labels{"managed_cluster": cluster}
	m.Requests.DeletePartialMatch(gone)
	m.Seconds.DeletePartialMatch(gone)
	m.Streams.DeletePartialMatch(gone)
}

// Agents are those that package agentclient counts with.
func (m *tunnelMetrics) Agents() agentclient.Metrics {
	return agentclient.Metrics{Dials: m.dials, HandshakeFailures: m.agentTLSFailures, Connect: m.connect, Connections: m.connections, Clusters: m.clusters}
}

// RejectedPeer is the reason in a metric for what is refused because it is no replica.
const RejectedPeer = "peer"

// Results of requests that a policy objects to.
const (
	PolicyRefused = "refused"
	PolicyWarned  = "warned"
	PolicyAudited = "audited"
)

// Results of asking other replicas for a position.
const (
	PositionFound   = "found"
	PositionUnknown = "unknown"
)

// Outcomes of requests to the clusters of a view.
const (
	Answered = "answered"
	Slow     = "slow"
	Failed   = "failed"
	Indexed  = "indexed"
	Relayed  = "relayed"
)

// Outcomes of sessions that cannot be recorded.
const (
	SessionRejected   = "rejected"
	SessionCut        = "ended"
	SessionUnrecorded = "unrecorded"
	SessionOver       = "over"
)
