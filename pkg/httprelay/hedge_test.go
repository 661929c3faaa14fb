package httprelay

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pooledAndShared are pooled connections and others to one peer.
func pooledAndShared(p *h2Peer, most int) (*ReadPool, *Shared, *[]*hole) {
	shared := &Shared{Dial: p.dial, Spread: 4, Streams: 100, IdleTimeout: time.Hour}
	holes := new([]*hole)
	pooled := &ReadPool{Most: most, IdleTimeout: time.Hour, Dial: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		conn := &hole{Conn: near, dead: make(chan struct{}), closed: make(chan struct{})}
		*holes = append(*holes, conn)
		server := &http.Server{Handler: p.handler}
		listener := &oneConn{conn: far, done: make(chan struct{})}
		go func() { _ = server.Serve(listener) }()
		context.AfterFunc(p.ctx, func() { _ = server.Close() })
		return conn, nil
	}}
	return pooled, shared, holes
}

// oneConn listens for the connection that it has.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.done
	return nil, io.EOF
}
func (l *oneConn) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestReadsOfASilentConnection has pooled connections die without a word, all at
// once. Reads on them are answered in another way, and those that come later.
func TestReadsOfASilentConnection(t *testing.T) {
	const connections = 8
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &h2Peer{handler: slow(0), ctx: ctx}
		pooled, shared, holes := pooledAndShared(p, connections)
		defer synctest.Wait()
		defer cancel()
		defer p.close()
		for range connections {
			one(pooled)
		}
		if len(*holes) != connections {
			t.Fatalf("%d pooled connections, want %d", len(*holes), connections)
		}
		read := func() error {
			return exchange(func(r *http.Request) (*http.Response, error) {
				return pooled.RoundTripOr(pooled.RoundTrip, shared.RoundTripRead, r)
			}, request(t, http.MethodGet, "/"))
		}
		if err := read(); err != nil {
			t.Fatal(err)
		}
		for _, conn := range *holes {
			close(conn.dead)
		}
		began := time.Now()
		var reads sync.WaitGroup
		for range connections / 2 {
			reads.Go(func() {
				if err := read(); err != nil || time.Since(began) > 3*time.Second {
					t.Errorf("%v after %s, want an answer in 3 s", err, time.Since(began))
				}
			})
		}
		reads.Wait()
		began = time.Now()
		if err := read(); err != nil || time.Since(began) > 0 {
			t.Errorf("the next read: %v after %s, want an answer at once", err, time.Since(began))
		}
	})
}

// TestSlowReadsAreSeldomSentTwice asks again and again for what takes long.
func TestSlowReadsAreSeldomSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		asked := 0
		p := &h2Peer{ctx: ctx, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked++
			mu.Unlock()
			slow(5*time.Second).ServeHTTP(w, r)
		})}
		pooled, shared, _ := pooledAndShared(p, 1)
		defer synctest.Wait()
		defer cancel()
		defer p.close()
		one(pooled)
		const times = 20
		for range times {
			if err := exchange(func(r *http.Request) (*http.Response, error) {
				return pooled.RoundTripOr(pooled.RoundTrip, shared.RoundTripRead, r)
			}, request(t, http.MethodGet, "/slow")); err != nil {
				t.Error(err)
			}
		}
		if want := times + times/2 + 1; asked > want {
			t.Errorf("%d reads of 5 s were sent %d times, want at most %d", times, asked, want)
		}
	})
}
