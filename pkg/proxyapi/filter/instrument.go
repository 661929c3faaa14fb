package filter

import (
	"bufio"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// statusClientClosed is what metrics show for a client that went away before it got an
// answer. It is never sent.
const statusClientClosed = 499

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "connect", "options"}

// verbLabel keeps clients from inventing label values. Scrapes of agents are not users' requests,
// whose service levels are watched, and have a verb of their own.
func verbLabel(rs *scope.Scope) string {
	if rs.AgentMetrics {
		return "metrics"
	}
	if rs.Info != nil && slices.Contains(verbs, rs.Info.Verb) {
		return rs.Info.Verb
	}
	return "other"
}

// Codes are the statuses that have a label value of their own: what API servers,
// proxies and this one answer.
var Codes = []int{101, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 407, 408, 409, 410, 412, 413, 415, 422, 429, 431,
	statusClientClosed, 500, 501, 502, 503, 504}

// codeLabel keeps clusters from inventing label values: any other status counts
// as its class, such as "4xx".
func codeLabel(code int) string {
	switch {
	case slices.Contains(Codes, code):
		return strconv.Itoa(code)
	case code < 100 || code > 599:
		return "other"
	}
	return strconv.Itoa(code/100) + "xx"
}

// instrumentedWriter measures a request. Everything else is the inner writer's, found by
// http.ResponseController.
type instrumentedWriter struct {
	http.ResponseWriter
	scope      *scope.Scope
	metrics    *metrics.Metrics
	clusters   scope.Clusters
	started    time.Time
	verb, kind string
	code       int
	took       time.Duration // until there was a code
	wrote      bool
	open       prometheus.Gauge // of streams; nil for a request
}

// Instrument counts a request and its answer.
func Instrument(w http.ResponseWriter, rs *scope.Scope, m *metrics.Metrics, known scope.Clusters) *instrumentedWriter {
	r := &instrumentedWriter{ResponseWriter: w, scope: rs, metrics: m, clusters: known, started: time.Now(), verb: verbLabel(rs), kind: "request"}
	if rs.Long {
		r.kind = "stream"
		r.open = m.Streams.WithLabelValues(r.cluster(), r.verb)
		r.open.Inc()
	}
	m.InFlight.WithLabelValues(r.kind).Inc()
	return r
}

func (r *instrumentedWriter) End() {
	m := r.metrics
	m.InFlight.WithLabelValues(r.kind).Dec()
	if r.open != nil {
		r.open.Dec()
	}
	// Only now, so that the series of a cluster that was removed meanwhile do not
	// come back.
	cluster, code := r.cluster(), r.code
	if code == 0 {
		code = statusClientClosed
	}
	m.Requests.WithLabelValues(cluster, r.verb, codeLabel(code)).Inc()
	if r.scope.Kind == scope.View {
		m.ViewRequests.WithLabelValues(r.verb, codeLabel(code)).Inc()
	}
	if cluster != "" && r.code != 0 {
		m.Seconds.WithLabelValues(cluster).Add(r.took.Seconds())
	}
}

// cluster is the label for the request's cluster, empty if there is none of that
// name.
func (r *instrumentedWriter) cluster() string {
	if name := r.scope.Target.Cluster; name != "" && r.clusters.Served(name) == nil {
		return name
	}
	return ""
}

func (r *instrumentedWriter) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *instrumentedWriter) WriteHeader(code int) {
	r.observe(code)
	r.ResponseWriter.WriteHeader(code)
}

func (r *instrumentedWriter) Write(p []byte) (int, error) {
	r.observe(http.StatusOK)
	if !r.wrote && r.scope.Kind == scope.View {
		r.metrics.ViewFirstByte.Observe(time.Since(r.started).Seconds())
	}
	r.wrote = true
	return r.ResponseWriter.Write(p)
}

// Hijack is called for upgrades and CONNECT, whose headers do not come through
// here.
func (r *instrumentedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(r.ResponseWriter).Hijack()
	switch {
	case err != nil:
	case r.scope.Inner != nil && r.scope.Inner.Verb == "connect":
		r.observe(http.StatusOK)
	default:
		r.observe(http.StatusSwitchingProtocols)
	}
	return conn, buffer, err
}

func (r *instrumentedWriter) observe(code int) {
	informational := code < 200 && code != http.StatusSwitchingProtocols
	if r.code != 0 || informational {
		return
	}
	r.code, r.took = code, time.Since(r.started)
	r.metrics.Latency.WithLabelValues(r.verb).Observe(r.took.Seconds())
}
