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

// farPeer is a peer to which a dial takes long, and whose large answers stop in the
// middle until the test ends.
func farPeer(t *testing.T, dial time.Duration, spread int) (*Shared, *h2Peer) {
	p := &h2Peer{}
	over := make(chan struct{})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 2*large))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}
	})
	t.Cleanup(func() { close(over); p.close() })
	return &Shared{Spread: spread, Streams: 100, IdleTimeout: time.Hour, Dial: func(ctx context.Context) (net.Conn, error) {
		time.Sleep(dial)
		return p.dial(ctx)
	}}, p
}

// download asks for a large answer and reads what comes of it.
func download(t *testing.T, s *Shared) *http.Response {
	t.Helper()
	resp, err := s.RoundTrip(request(t, http.MethodGet, "/large"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 2*large)); err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestSmallRequestsPassLargeOnes has downloads under way. Small requests share no
// connection with one of them while there may be more, but do not wait long for
// that either.
func TestSmallRequestsPassLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dial = 4 * time.Second
		s, p := farPeer(t, dial, 3)
		first := download(t, s)
		took := func() time.Duration {
			began := time.Now()
			if err := exchange(s.RoundTrip, request(t, http.MethodPost, "/")); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if got := took(); got != largeWait {
			t.Errorf("a small request beside a download took %s, want it to wait %s for another connection", got, largeWait)
		}
		time.Sleep(dial)
		if n := p.dials(); n != 2 {
			t.Errorf("%d connections, want one for those that are not large", n)
		}
		if got := took(); got != 0 {
			t.Errorf("a small request took %s where one connection has no download", got)
		}
		used := func() (active, bulky []int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range s.conns {
				active, bulky = append(active, c.active), append(bulky, c.bulky)
			}
			return active, bulky
		}
		second := download(t, s)
		if _, bulky := used(); bulky[0] != 1 || bulky[1] != 1 {
			t.Errorf("%v downloads by connection, want one each", bulky)
		}
		_, _ = first.Body.Close(), second.Body.Close()
		time.Sleep(dial)
		synctest.Wait()
		if active, bulky := used(); len(active) != 3 || bulky[0]+bulky[1]+bulky[2]+active[0]+active[1]+active[2] != 0 {
			t.Errorf("%v requests by connection, %v of them large, want none on three", active, bulky)
		}
	})
}

// TestRetireEndsDials retires connections while one more is dialed, for which nothing waits.
func TestRetireEndsDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dial = time.Second
		s, p := farPeer(t, dial, 3)
		first := download(t, s)
		s.Retire()
		open := func() int {
			time.Sleep(dial)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.conns)
		}
		if got := open(); got != 1 || p.dials() != 2 {
			t.Errorf("%d of %d connections stay, want that of the download alone, of two", got, p.dials())
		}
		_ = first.Body.Close()
		if got := open(); got != 0 {
			t.Errorf("%d connections stay without a request", got)
		}
	})
}

// TestManyRequestsDialAtATime has many requests begin at the same moment. They do not
// wait for one dial after the other.
func TestManyRequestsDialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dial = time.Second
		s, p := farPeer(t, dial, 4)
		began := time.Now()
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() {
				if err := exchange(s.RoundTrip, request(t, http.MethodPost, "/")); err != nil {
					t.Error(err)
				}
			})
		}
		requests.Wait()
		took := time.Since(began)
		synctest.Wait() // they may all be over before the last dial of that moment
		if took != dial || p.dials() != 4 {
			t.Errorf("8 requests took %s on %d connections, want %s on 4", took, p.dials(), dial)
		}
	})
}

// TestSmallRequestsShareADial has small requests begin at the same moment. They wait for one dial
// together, and share its connection with what else is on it.
func TestSmallRequestsShareADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := farPeer(t, time.Second, 4)
		for range 2 {
			var requests sync.WaitGroup
			for range 3 {
				requests.Go(func() {
					if err := exchange(s.RoundTripSmall, request(t, http.MethodGet, "/")); err != nil {
						t.Error(err)
					}
				})
			}
			requests.Wait()
			synctest.Wait()
		}
		if p.dials() != 1 {
			t.Errorf("small requests were sent on %d connections, want 1", p.dials())
		}
	})
}
