package fleetindexer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	// streamsOfConnection bounds the requests of one connection.
	streamsOfConnection = 64
	// requestTimeout is how long a request may take to come, and answerTimeout how long its answer may.
	requestTimeout, answerTimeout = 10 * time.Second, time.Minute
	idleTimeout                   = 3 * time.Minute
	handshakeTimeout              = 10 * time.Second
	// handshakesAtOnce bounds the TLS handshakes that are worked on.
	handshakesAtOnce = 4
	maxHeader        = 16 << 10
)

// Kinds of requests, for metrics.
const (
	kindTables = "tables"
	kindSearch = "search"
	kindCount  = "count"
	kindOther  = "other"
)

// serve serves the proxy API until ctx is done.
func (a *answers) serve(ctx context.Context, source *pki.Reloader, listener net.Listener) error {
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{Handler: a.handler(source), ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0)}
	if err := httprelay.ConfigureServer(server, streamsOfConnection); err != nil {
		return fmt.Errorf("configuring HTTP/2: %w", err)
	}
	port := handshakes.New(handshakes.Options{Config: config, Limit: handshakesAtOnce, Timeout: handshakeTimeout, Dropped: func(string) {}})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // the proxy API asks another replica, or the clusters
	defer stop()
	if err := server.Serve(handshakes.NewListener(listener, port, klog.FromContext(ctx))); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the proxy API on %q: %w", listener.Addr(), err)
	}
	return nil
}

// handler answers the proxy API, and nobody else.
func (a *answers) handler(source *pki.Reloader) http.Handler {
	routes := a.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := source.CheckRole(r.TLS, identity.RoleProxyAPI); err != nil {
			a.metrics.requests.WithLabelValues(kindOther, strconv.Itoa(http.StatusForbidden)).Inc()
			klog.FromContext(r.Context()).Info("Refused a client that is not the proxy API", "from", r.RemoteAddr, "message", err.Error())
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusForbidden, "this port is for the proxy API: ask it for a fleet view, or search with \"kubectl clusterproxy search\"")
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// routes are the paths of the port.
func (a *answers) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+indexapi.TablesPath, a.answer(kindTables, a.answerTables))
	mux.Handle("POST "+indexapi.SearchPath, a.answer(kindSearch, a.answerSearch))
	mux.Handle("POST "+indexapi.CountPath, a.answer(kindCount, a.answerCount))
	mux.Handle("/", a.answer(kindOther, func(context.Context, http.ResponseWriter, *http.Request) error {
		return status.New(http.StatusNotFound, fmt.Sprintf("the fleet index takes a POST to %s, %s and %s", indexapi.TablesPath, indexapi.SearchPath, indexapi.CountPath))
	}))
	return mux
}

// answer bounds what answers a kind of request, counts it and writes its error.
func (a *answers) answer(kind string, f func(context.Context, http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		_ = http.NewResponseController(w).SetWriteDeadline(began.Add(answerTimeout)) // tests have writers without
		answered := &answered{ResponseWriter: w}
		defer func() {
			a.metrics.requests.WithLabelValues(kind, strconv.Itoa(answered.code)).Inc()
			a.metrics.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
		}()
		select {
		case a.requests <- struct{}{}:
			defer a.requests.release()
			if err := f(ctx, answered, r); err != nil {
				a.fail(ctx, answered, kind, err)
			}
		default:
			refuse(answered, http.StatusTooManyRequests, fmt.Sprintf("the fleet index answers %d requests: try again", requestsAtOnce))
		}
	})
}

// fail writes an error, or cuts off an answer that has begun.
func (a *answers) fail(ctx context.Context, w *answered, kind string, err error) {
	var refused *status.Error
	var tooLarge *http.MaxBytesError
	switch {
	case w.code != 0:
		a.failed(ctx, err, "Failed to answer in full", "kind", kind)
		panic(http.ErrAbortHandler) // or it would look whole
	case errors.As(err, &refused):
		status.Write(w, refused.ErrStatus)
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes: ask about fewer clusters at a time", tooLarge.Limit))
	case errors.Is(err, fleetindex.ErrToken):
		refuse(w, http.StatusGone, err.Error())
	case ctx.Err() != nil:
		refuse(w, http.StatusGatewayTimeout, fmt.Sprintf("the fleet index did not answer within %s: ask about fewer clusters at a time", answerTimeout))
	default:
		a.failed(ctx, err, "Failed to answer", "kind", kind)
		refuse(w, http.StatusInternalServerError, "the fleet index cannot read its store: see its log")
	}
}

// answered notes the code of an answer.
type answered struct {
	http.ResponseWriter
	code int
}

// Unwrap is for http.ResponseController.
func (w *answered) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answered) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *answered) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}
