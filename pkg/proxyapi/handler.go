package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
)

// clusters is what the hub knows about managed clusters, for requests.
type clusters interface {
	agentclient.Admission
	// Synced is an error until the hub's answer is complete.
	Synced() error
	// AwaySince is when the addon of that cluster stopped being available; zero if
	// it is available or nobody knows.
	AwaySince(cluster string) time.Time
	// Names are those of the served clusters, in no order.
	Names() []string
	// Describe says of a served cluster what its objects on the hub say.
	Describe(cluster string) v1alpha1.Cluster
	// ClusterSet is the ManagedClusterSet that a cluster has joined.
	ClusterSet(cluster string) string
}

// handler serves every door: see the package comment for the way of a request.
type handler struct {
	clusters clusters
	agents   *agentclient.Client
	metrics  *metrics
	// domain is the one that <cluster>.<domain> are hosts of; empty for none.
	domain        string
	authenticator *hubaccess.Authenticator
	authorizer    *hubaccess.Authorizer
	services      services
	latencies     *latencies
	// requests and streams are limits of those with a natural end, and without.
	requests, streams *limiter
	// uploads and answers are limits of the bytes of bodies that are not read.
	uploads, answers *limiter
	// memory is what the process has for more requests; nil is without limit.
	memory *memlimit.Gate
	// allowAnonymous lets requests without a credential go to the clusters.
	allowAnonymous bool
	// revalidation is nil if streams are not looked at again.
	revalidation *revalidation
	// via finds requests that come a second time.
	via via
	// draining is done when watches should go elsewhere.
	draining context.Context

	// chain is what a request goes through that was understood.
	chain http.Handler
	// refusal answers requests that were not.
	refusal http.Handler
	// own answers requests that are for the proxy API itself.
	own    http.Handler
	probes http.Handler
	proxy  *httputil.ReverseProxy
	// inFlight counts requests, those with a hijacked connection included.
	inFlight sync.WaitGroup
}

// services is which Services of clusters may be asked for, and how.
type services interface {
	terms(cluster, set string, s agentapi.Service) agentapi.ServiceTerms
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httprelay.GrowStack()
	h.inFlight.Add(1)
	defer h.inFlight.Done()
	defer logPanic(r)
	// At a cluster's own host these are the cluster's.
	if _, there := h.clusterOfHost(r.Host); !there && (r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/healthz") {
		h.probes.ServeHTTP(w, r)
		return
	}
	c, err := h.newCall(r)
	if err == nil {
		err = checkSize(r)
	}
	if c.long && h.revalidation != nil {
		c.asked = keepAsked(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	rec := h.record(w, c)
	// Deferred, because ReverseProxy panics to cut a response off.
	defer rec.end()
	measured := responsewriter.WrapForHTTP1Or2(rec)
	if err != nil {
		h.refusal.ServeHTTP(measured, r.WithContext(context.WithValue(r.Context(), failureKey{}, err)))
		return
	}
	h.chain.ServeHTTP(measured, r)
}

// admitted lets a request on if there is such a cluster, and nothing in its
// headers is meant to deceive. It comes after authorization, because who may
// not reach a cluster need not know whether there is one.
func (h *handler) admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		if c.inner == nil {
			next.ServeHTTP(w, r)
			return
		}
		if err := h.admit(c, r); err != nil {
			h.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *handler) admit(c *call, r *http.Request) error {
	target := c.target
	if err := h.via.check(r.Header); err != nil {
		return err
	}
	if err := h.clusters.Synced(); err != nil {
		return refusal(http.StatusServiceUnavailable, fmt.Sprintf("the proxy API is starting: %v", err))
	}
	if target.ForService() {
		if err := h.admitToService(c, r); err != nil {
			return err
		}
	}
	if err := checkConnection(r.Header); err != nil {
		return err
	}
	// This comes last, so that nothing else tells whether there is one.
	return h.clusters.Served(target.Cluster)
}

// annotated adds to audit events what cannot be seen from outside.
func annotated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := callOf(r.Context()); c.inner != nil {
			audit.AddAuditAnnotations(r.Context(), annotationPrefix+"cluster", c.target.Cluster, annotationPrefix+"request", innerText(r, c))
		}
		next.ServeHTTP(w, r)
	})
}

// innerText is the request as the cluster sees it, for audit events.
func innerText(r *http.Request, c *call) string {
	if r.Method == http.MethodConnect {
		return r.Method + " " + r.Host
	}
	text := r.Method + " " + c.target.Path + c.target.Query
	if c.target.ForService() {
		text += " of " + c.target.Service.String()
	}
	return text
}

// byProxies begins the headers that the hub's front proxy adds to a request.
var byProxies = append([]string{agentapi.Asserted}, agentapi.Vouched...)

// checkSize refuses a request whose URL and headers are too long. What the front
// proxy says of the user is not the client's fault: it may be 500 groups. Nor is
// how it encodes the URL, in which %2C counts as one byte therefore.
func checkSize(r *http.Request) error {
	size := len(r.RequestURI) - 2*strings.Count(r.RequestURI, "%")
	for name, values := range r.Header {
		if agentapi.BeginsAny(name, byProxies) {
			continue
		}
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	if size <= maxHeaderBytes {
		return nil
	}
	return refusal(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request's URL and headers have %d bytes, more than the %d that are allowed: send less, such as a shorter selector", size, maxHeaderBytes))
}

// hopHeaders are what a Connection header may name.
var hopHeaders = []string{"upgrade", "keep-alive", "close", "te", "proxy-connection", "http2-settings", "transfer-encoding", "trailer"}

// checkConnection refuses to have end-to-end headers dropped on the way.
func checkConnection(header http.Header) error {
	for _, line := range header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			token = strings.ToLower(strings.TrimSpace(token))
			if token != "" && !httpguts.HeaderValuesContainsToken(hopHeaders, token) {
				return refusal(http.StatusBadRequest, "the Connection header names a header that is not about the connection: leave that out")
			}
		}
	}
	return nil
}

// serve answers a request that may go on.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	c := callOf(r.Context())
	switch {
	case c.inner == nil:
		h.own.ServeHTTP(w, r)
	case r.Method == http.MethodConnect:
		h.connect(w, r)
	default:
		c.sent = time.Now()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		paced := h.paced(w, c)
		defer paced.end()
		w, r = httprelay.NoFinalFlush(paced), r.WithContext(context.WithValue(ctx, cancelKey{}, cancel))
		if httprelay.IsUpgrade(r.Header) {
			w, r = connect.Upgrade(w, r)
		}
		h.proxy.ServeHTTP(w, r)
	}
}

type cancelKey struct{}

// refuse answers in the place of the cluster.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	cluster := c.target.Cluster
	err = h.hidden(c, err)
	code, message := statusFor(err, cluster, h.clusters.AwaySince(cluster))
	if code == agentclient.StatusClientClosed || errors.Is(r.Context().Err(), context.Canceled) {
		// Nobody is there to read an answer, or the drain timeout has passed:
		// the request must not look as if it had been answered.
		panic(http.ErrAbortHandler)
	}
	if code == http.StatusUnauthorized && r.Method == http.MethodConnect {
		code = http.StatusProxyAuthRequired
		w.Header().Set("Proxy-Authenticate", `Basic realm="cluster-proxy: any user name, a token of the hub as password"`)
	}
	writeStatus(w, code, message)
}

// discard is where net/http logs. What it has to say is about clients that went
// away and port scans.
var discard = log.New(io.Discard, "", 0)
