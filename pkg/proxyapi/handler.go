package proxyapi

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// handler serves /<cluster>/<path>.
type handler struct {
	clusters clusters
	pool     *pool
	metrics  *metrics
	proxy    *httputil.ReverseProxy
	// inFlight counts requests, those with a hijacked connection included.
	inFlight sync.WaitGroup
}

func newHandler(c clusters, p *pool, m *metrics) *handler {
	h := &handler{clusters: c, pool: p, metrics: m}
	h.proxy = &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     p,
		FlushInterval: -1,
		ErrorHandler:  h.refuse,
		BufferPool:    &buffers{},
		// What it would write there is about clients that went away.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return h
}

type targetKey struct{}

// targetOf is the target of a request that ServeHTTP let through.
func targetOf(ctx context.Context) route.Target {
	target, _ := ctx.Value(targetKey{}).(route.Target)
	return target
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.inFlight.Add(1)
	defer h.inFlight.Done()
	kind := "request"
	if isUpgrade(r) {
		kind = "upgrade"
	}
	gauge := h.metrics.inFlight.WithLabelValues(kind)
	gauge.Inc()
	defer gauge.Dec()

	start, method := time.Now(), methodLabel(r.Method)
	rec := &recorder{ResponseWriter: w, onHeader: func() {
		h.metrics.latency.WithLabelValues(method).Observe(time.Since(start).Seconds())
	}}
	// Deferred, because ReverseProxy panics to cut a response off.
	defer func() { h.metrics.requests.WithLabelValues(method, rec.label()).Inc() }()

	target, err := h.admit(r)
	r = r.WithContext(context.WithValue(r.Context(), targetKey{}, target))
	if err != nil {
		h.refuse(rec, r, err)
		return
	}
	h.proxy.ServeHTTP(rec, r)
}

// admit decides whether a request is forwarded, and where to.
func (h *handler) admit(r *http.Request) (route.Target, error) {
	target, err := route.Parse(r.RequestURI)
	if err != nil {
		return route.Target{}, err
	}
	if err := h.clusters.synced(); err != nil {
		return target, &problem{http.StatusServiceUnavailable, fmt.Sprintf("the proxy API is starting: %v", err)}
	}
	if !h.clusters.known(target.Cluster) {
		return target, &problem{http.StatusNotFound, fmt.Sprintf("there is no managed cluster %q on this hub: see \"kubectl get managedclusters\"", target.Cluster)}
	}
	return target, checkConnection(r.Header)
}

// hopHeaders are what a Connection header may name.
var hopHeaders = []string{"upgrade", "keep-alive", "close", "te", "proxy-connection", "http2-settings", "transfer-encoding", "trailer"}

// checkConnection refuses to have end-to-end headers dropped on the way.
func checkConnection(header http.Header) error {
	for _, line := range header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			token = strings.ToLower(strings.TrimSpace(token))
			if token != "" && !httpguts.HeaderValuesContainsToken(hopHeaders, token) {
				return &problem{http.StatusBadRequest, "the Connection header names a header that is not about the connection: leave that out"}
			}
		}
	}
	return nil
}

// vouched are headers with which a proxy speaks about somebody else. Only the
// next hop's own proxy may; ReverseProxy deletes X-Forwarded-* and Forwarded.
var vouched = []string{"X-Remote-", "Cluster-Proxy-", "X-Real-Ip", "X-Forwarded-"}

func rewrite(r *httputil.ProxyRequest) {
	target := targetOf(r.In.Context())
	r.Out.URL.Scheme = "https"
	r.Out.URL.Host = net.JoinHostPort(identity.HandlerHost(target.Cluster), identity.HandlerPort)
	r.Out.Host = r.Out.URL.Host
	if err := target.Apply(r.Out.URL); err != nil {
		// admit parsed it. A host that the pool does not know fails the request.
		r.Out.URL.Host = ""
	}
	for name := range r.Out.Header {
		for _, prefix := range vouched {
			if strings.HasPrefix(name, prefix) {
				delete(r.Out.Header, name)
			}
		}
	}
	if host, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		r.Out.Header.Set("X-Forwarded-For", host)
	}
}

// refuse answers in the place of the cluster.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	cluster := targetOf(r.Context()).Cluster
	code, message := statusFor(err, cluster, h.clusters.awaySince(cluster))
	if code == statusClientClosed || r.Context().Err() == context.Canceled {
		// Nobody is there to read an answer, or the drain timeout has passed:
		// the request must not look as if it had been answered.
		panic(http.ErrAbortHandler)
	}
	writeStatus(w, code, message)
}

// RoundTrip sends a request to the agent of the cluster in its context.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	target := targetOf(r.Context())
	if target.Cluster == "" || r.URL.Host == "" {
		return nil, &problem{http.StatusBadRequest, "the request has no target"}
	}
	a := p.agent(target.Cluster)
	if isUpgrade(r) {
		return a.upgrades.RoundTrip(r)
	}
	return a.requests.RoundTrip(r)
}

// isUpgrade reports whether a request is exec, attach, port-forward or another
// change of protocol.
func isUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
}

// buffers lends ReverseProxy its copy buffers.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
