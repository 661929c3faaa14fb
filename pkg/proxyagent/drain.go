package proxyagent

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// quiet is how long a connection must be without a request to count as unused: until
// then the next request may be on its way.
const quiet = 2 * time.Second

// connDrainer asks the proxy API to open new connections when this agent, or a proxy
// server on the way to it, is about to stop: the GOAWAY of this hop. The proxy API
// keeps its connections for as long as it can use them, and the end of the drain
// would cut them with the requests of that moment. There may be two proxy servers on
// the way, if the first one had no agent of this cluster.
//
// It asks in answers. The client must end the idle connection, since a server that
// ends it may have a request on its way.
type connDrainer struct {
	ending  atomic.Bool             // this agent drains
	servers atomic.Pointer[servers] // set before the first connection comes

	mu   sync.Mutex
	idle map[net.Conn]time.Time // since when connections have had no request
}

func newConnDrainer() *connDrainer { return &connDrainer{idle: map[net.Conn]time.Time{}} }

type throughKey struct{}

// via is a http.Server's ConnContext. It notes which proxy servers a connection comes
// through, if it comes from a connListener.
func (t *connDrainer) via(ctx context.Context, conn net.Conn) context.Context {
	for over, ok := conn.(interface{ NetConn() net.Conn }); ok; over, ok = conn.(interface{ NetConn() net.Conn }) {
		conn = over.NetConn()
	}
	if handed, ok := conn.(*handedConn); ok {
		return context.WithValue(ctx, throughKey{}, handed.through)
	}
	return ctx
}

// watch is a http.Server's ConnState.
func (t *connDrainer) watch(conn net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state == http.StateIdle {
		t.idle[conn] = time.Now()
	} else {
		delete(t.idle, conn)
	}
}

// countUnused returns the number of open connections without a request for a while.
func (t *connDrainer) countUnused() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, since := range t.idle {
		if time.Since(since) >= quiet {
			n++
		}
	}
	return n
}

// leaving reports whether this agent, or a proxy server that a request's connection
// goes through, is about to stop.
func (t *connDrainer) leaving(ctx context.Context) bool {
	through, _ := ctx.Value(throughKey{}).([]string)
	servers := t.servers.Load()
	return t.ending.Load() || servers != nil && servers.isGoingAway(through)
}

// handler asks clients in its answers to use another connection next time. In HTTP/2
// it does so by a header of our own: a GOAWAY frame would fail the requests that
// cross it on their way and cannot be retried.
func (t *connDrainer) handler(next http.Handler) http.Handler {
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
