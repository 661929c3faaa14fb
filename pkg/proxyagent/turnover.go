package proxyagent

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// quiet is how long a connection has had no request when it counts as unused:
// with one that is in use, the next one may be on its way.
const quiet = 2 * time.Second

// turnover moves the proxy API's connections to the handler, which it keeps for
// as long as it can use them, away from what is about to stop: this agent, or
// a proxy server that they go through: of two, if the first one had no agent of
// this cluster then. They would be cut at the end of the drain, and the requests
// of that moment with them.
//
// Only an answer can say it. The client is the one who ends an idle connection,
// since a server that does may have a request on its way.
type turnover struct {
	ending  atomic.Bool             // this agent drains
	servers atomic.Pointer[servers] // set before the first connection comes

	mu   sync.Mutex
	idle map[net.Conn]time.Time // since when connections have had no request
}

func newTurnover() *turnover { return &turnover{idle: map[net.Conn]time.Time{}} }

type throughKey struct{}

// via is a http.Server's ConnContext: which proxy servers a connection comes
// through, if it was handed over.
func (t *turnover) via(ctx context.Context, conn net.Conn) context.Context {
	for over, ok := conn.(interface{ NetConn() net.Conn }); ok; over, ok = conn.(interface{ NetConn() net.Conn }) {
		conn = over.NetConn()
	}
	if handed, ok := conn.(*handedConn); ok {
		return context.WithValue(ctx, throughKey{}, handed.through)
	}
	return ctx
}

// watch is a http.Server's ConnState.
func (t *turnover) watch(conn net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state == http.StateIdle {
		t.idle[conn] = time.Now()
	} else {
		delete(t.idle, conn)
	}
}

// unused is how many connections are open and have had no request for a while.
func (t *turnover) unused() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, since := range t.idle {
		if time.Since(since) >= quiet {
			n++
		}
	}
	return n
}

// leaving reports whether a request's connection leads through what is about to
// stop.
func (t *turnover) leaving(ctx context.Context) bool {
	through, _ := ctx.Value(throughKey{}).([]string)
	servers := t.servers.Load()
	return t.ending.Load() || servers != nil && slices.ContainsFunc(through, servers.isDraining)
}

// handler tells clients in its answers to use another connection next time. In
// HTTP/2 it is a header of our own: GOAWAY would fail the requests that cross
// it on their way, those of them that cannot be repeated.
func (t *turnover) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.leaving(r.Context()) {
			switch {
			case r.ProtoMajor == 2:
				w.Header().Set(agentapi.Leaving, "1")
			case !httprelay.IsUpgrade(r.Header):
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, r)
	})
}
