package httprelay

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
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
// once. Reads on them are answered in another way as soon as there is evidence, and those
// that come later at once.
func TestReadsOfASilentConnection(t *testing.T) {
	const connections = 8
	for name, tc := range map[string]struct {
		// alive is the evidence; the others die too if that is a ping.
		alive     func(shared *Shared, conn net.Conn, heard time.Time) bool
		othersDie bool
	}{
		"what was sent is not acknowledged": {alive: func(_ *Shared, conn net.Conn, _ time.Time) bool { return Acknowledges(conn.(*hole).silent) }},
		"a ping is not answered":            {alive: func(shared *Shared, _ net.Conn, heard time.Time) bool { return shared.Alive(heard) }, othersDie: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				p := &h2Peer{handler: slow(0), ctx: ctx}
				pooled, shared, holes := pooledAndShared(p, connections)
				pooled.Alive = func(conn net.Conn, heard time.Time) bool { return tc.alive(shared, conn, heard) }
				defer synctest.Wait()
				defer cancel()
				defer p.close()
				if err := exchange(shared.RoundTripRead, request(t, http.MethodGet, "/")); err != nil {
					t.Fatal(err)
				}
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
				if tc.othersDie {
					p.die()
				}
				time.Sleep(time.Minute)
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
		})
	}
}

// TestSlowReadsAreSentOnce has a healthy peer that is slow, and that refuses what comes
// beside its pooled connections, as an overloaded kube-apiserver may. Every read gets the
// answer that it waits for.
func TestSlowReadsAreSentOnce(t *testing.T) {
	const readers, each = 16, 12
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var asked, beside atomic.Int64
		p := &h2Peer{ctx: ctx, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				beside.Add(1)
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			n := asked.Add(1)
			slow(1500*time.Millisecond+time.Duration(n*733%4500)*time.Millisecond).ServeHTTP(w, r)
		})}
		pooled, shared, _ := pooledAndShared(p, readers)
		pooled.Alive = func(_ net.Conn, heard time.Time) bool { return shared.Alive(heard) }
		defer synctest.Wait()
		defer cancel()
		defer p.close()
		for range readers {
			one(pooled)
		}
		read := func(r *http.Request) (*http.Response, error) {
			resp, err := pooled.RoundTripOr(pooled.RoundTrip, shared.RoundTripRead, r)
			if err == nil && resp.StatusCode != http.StatusOK {
				t.Errorf("a read is answered %d, want 200", resp.StatusCode)
			}
			return resp, err
		}
		var reading sync.WaitGroup
		for range readers {
			reading.Go(func() {
				for range each {
					if err := exchange(read, request(t, http.MethodGet, "/slow")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		reading.Wait()
		if asked.Load() != readers*each || beside.Load() > 0 {
			t.Errorf("%d reads were sent %d times, and %d times beside that; want once each", readers*each, asked.Load(), beside.Load())
		}
	})
}

// TestSilenceOfOthersCountsOnce has another connection to the peer fall silent. That is evidence
// against the pooled connections that were free then, and not against those made later: their
// answers are only slow.
func TestSilenceOfOthersCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int64
		p := &h2Peer{ctx: ctx, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			slow(5*time.Second).ServeHTTP(w, r)
		})}
		pooled, shared, _ := pooledAndShared(p, 1)
		pooled.Alive = func(_ net.Conn, heard time.Time) bool { return shared.Alive(heard) }
		defer synctest.Wait()
		defer cancel()
		defer p.close()
		if err := exchange(shared.RoundTripRead, request(t, http.MethodGet, "/")); err != nil {
			t.Fatal(err)
		}
		one(pooled)
		p.die()
		time.Sleep(time.Second)
		for _, want := range []int64{2, 1, 1} {
			asked.Store(0)
			if err := exchange(func(r *http.Request) (*http.Response, error) {
				return pooled.RoundTripOr(pooled.RoundTrip, shared.RoundTripRead, r)
			}, request(t, http.MethodGet, "/slow")); err != nil {
				t.Error(err)
			}
			if got := asked.Load(); got != want {
				t.Errorf("a slow read was sent %d times, want %d", got, want)
			}
			one(pooled)
		}
	})
}
