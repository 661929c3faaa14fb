package proxyapi

import (
	"bufio"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

const (
	namespace = "cluster_proxy"
	subsystem = "api"
)

// metrics are the numbers of the proxy API. None has the cluster as a label: a
// hub has thousands.
type metrics struct {
	requests    *prometheus.CounterVec
	latency     *prometheus.HistogramVec
	inFlight    *prometheus.GaugeVec
	dials       *prometheus.CounterVec
	connect     prometheus.Histogram
	connections prometheus.Gauge
	clusters    prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "requests_total", Help: "Requests that ended, by method and HTTP status; 499 means that the client went away."}, []string{"method", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "request_duration_seconds", Help: "Time from a request to its response's header.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, []string{"method"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "requests_in_flight", Help: "Requests being served; upgrade is exec, attach and port-forward."}, []string{"kind"}),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "tunnel_dials_total", Help: "Dials through the tunnel, by result."}, []string{"result"}),
		connect: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "agent_connect_duration_seconds", Help: "Time of a dial and the TLS handshake with the agent.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "agent_connections", Help: "Open connections to agents."}),
		clusters: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem,
			Name: "pooled_clusters", Help: "Clusters that have a place in the connection pool."}),
	}
	registry.MustRegister(m.requests, m.latency, m.inFlight, m.dials, m.connect, m.connections, m.clusters)
	return m
}

func (m *metrics) observeDial(err error) {
	result := "Connected"
	if err != nil {
		if result = string(tunnel.CodeOf(err)); result == "" {
			result = "Failed"
		}
	}
	m.dials.WithLabelValues(result).Inc()
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// methodLabel keeps clients from inventing label values.
func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

// recorder remembers the status of a response. Everything else is the inner
// writer's, found by http.ResponseController.
type recorder struct {
	http.ResponseWriter
	code     int
	onHeader func()
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	r.record(code)
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.record(http.StatusOK)
	return r.ResponseWriter.Write(p)
}

// Hijack is called for upgrades, whose header does not come through here.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.record(http.StatusSwitchingProtocols)
	}
	return conn, buffer, err
}

func (r *recorder) record(code int) {
	informational := code < 200 && code != http.StatusSwitchingProtocols
	if r.code != 0 || informational {
		return
	}
	r.code = code
	r.onHeader()
}

func (r *recorder) label() string {
	if r.code == 0 {
		return strconv.Itoa(statusClientClosed)
	}
	return strconv.Itoa(r.code)
}
