package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
)

// network is one between replicas in memory, in a bubble.
type network struct {
	clock version.Clock

	mu sync.Mutex
	// at has who answers at an address, and frozen the addresses that never do.
	at     map[string]http.Handler
	frozen map[string]bool
}

// set lets a handler answer at an address; nil for nobody.
func (n *network) set(address string, handler http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[address] = handler
}

func (n *network) freeze(address string, frozen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen[address] = frozen
}

// apiReplica is the part of a proxy API that its peers see.
type apiReplica struct {
	*Peers
	address string
	end     func()
}

// transport sends the requests of a replica, whose address it puts into them.
type transport struct {
	n    *network
	from string
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.n.mu.Lock()
	frozen, to := t.n.frozen[r.URL.Host] || t.n.frozen[net.JoinHostPort(t.from, "9093")], t.n.at[r.URL.Host]
	t.n.mu.Unlock()
	if frozen {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if to == nil {
		return nil, errors.New("connection refused")
	}
	r.RemoteAddr = net.JoinHostPort(t.from, "40000")
	w := httptest.NewRecorder()
	to.ServeHTTP(w, r)
	return w.Result(), nil
}

// start starts replica number i, which finds the others by a name that stands for these.
func (n *network) start(t *testing.T, i int, named ...*apiReplica) *apiReplica {
	ip := fmt.Sprint("10.0.0.", i)
	r := &apiReplica{address: net.JoinHostPort(ip, "9093")}
	r.Peers = New([]string{"peers:9093"}, 9093, new(position.Store), transport{n, ip}, metrics.New(prometheus.NewRegistry()))
	r.Positions.Ask = r.Ask
	r.Lookup = func(context.Context, string) ([]string, error) {
		ips := []string{ip}
		for _, other := range named {
			host, _, _ := net.SplitHostPort(other.address)
			ips = append(ips, host)
		}
		return ips, nil
	}
	n.set(r.address, r.Routes())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	r.end = func() {
		cancel()
		<-done
		n.set(r.address, nil)
	}
	t.Cleanup(r.end)
	return r
}

// list records a list at a replica.
func (n *network) list(r *apiReplica) version.Version {
	at := n.clock.Now()
	r.Positions.RecordPage("jane", at, 0, true, map[string]string{"uid": "100"})
	return at
}

func (r *apiReplica) knows(t *testing.T, what string, v version.Version, want bool) {
	t.Helper()
	if got, ok := r.Positions.Find(t.Context(), v, "jane"); ok != want || want && got["uid"] != "100" {
		t.Errorf("%s: %s knows %v, %v, want %v", what, r.address, got, ok, want)
	}
}

// inNetwork runs a test with replicas in a bubble.
func inNetwork(t *testing.T, test func(*testing.T, *network)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, &network{at: map[string]http.Handler{}, frozen: map[string]bool{}})
	})
}

// TestPeersFindEachOther has replicas of which the second and the third find the first one
// by name only.
func TestPeersFindEachOther(t *testing.T) {
	inNetwork(t, func(t *testing.T, n *network) {
		a := n.start(t, 1)
		b, c := n.start(t, 2, a), n.start(t, 3, a)
		time.Sleep(2 * greetEvery)
		synctest.Wait()
		for _, r := range []*apiReplica{a, b, c} {
			if got := testutil.ToFloat64(r.Metrics.Peers); got != 2 {
				t.Errorf("%s has %v peers, want 2", r.address, got)
			}
			at := n.list(r)
			for _, other := range []*apiReplica{a, b, c} {
				other.knows(t, "a list", at, true)
			}
			r.knows(t, "a version of nobody", n.clock.Now(), false)
			if found, unknown := testutil.ToFloat64(r.Metrics.Asked.WithLabelValues(metrics.PositionFound)), testutil.ToFloat64(r.Metrics.Asked.WithLabelValues(metrics.PositionUnknown)); unknown != 1 {
				t.Errorf("%s has counted %v and %v versions, want 1 that is unknown", r.address, found, unknown)
			}
		}
	})
}

// TestPeersOverARestart replaces two replicas while their name stands for the old ones.
func TestPeersOverARestart(t *testing.T) {
	inNetwork(t, func(t *testing.T, n *network) {
		leave := func(r *apiReplica) {
			done := make(chan struct{})
			close(done)
			r.Drain(t.Context(), done)
			r.end()
		}
		a := n.start(t, 1)
		b := n.start(t, 2, a)
		time.Sleep(time.Second)
		a2 := n.start(t, 3, a, b)
		synctest.Wait()
		ofA := n.list(a)
		leave(a)
		b2 := n.start(t, 4, a, b)
		synctest.Wait()
		ofB := n.list(b)
		leave(b)
		for _, r := range []*apiReplica{a2, b2} {
			r.knows(t, "that of the first", ofA, true)
			r.knows(t, "that of the second", ofB, true)
			ofNew := n.list(r)
			a2.knows(t, "that of a new one", ofNew, true)
			b2.knows(t, "that of a new one", ofNew, true)
		}
		time.Sleep(2 * greetEvery)
		synctest.Wait()
		for _, r := range []*apiReplica{a2, b2} {
			if _, all := r.Live(); !all {
				t.Errorf("%s counts a replica that has said goodbye as lost", r.address)
			}
		}
	})
}

// TestPeerIsLost has a replica that is killed, and one that does not answer.
func TestPeerIsLost(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		inNetwork(t, func(t *testing.T, n *network) {
			a := n.start(t, 1)
			b, c := n.start(t, 2, a), n.start(t, 3, a)
			time.Sleep(time.Second)
			of, ofLost := n.list(a), n.list(b)
			n.freeze(b.address, frozen)
			if !frozen {
				b.end()
			}
			began := time.Now()
			c.knows(t, "while one is lost", of, true)
			c.knows(t, "while one is lost", ofLost, false)
			if took := time.Since(began); took > 2*askTimeout {
				t.Errorf("the answers took %s, want %s at most", took, 2*askTimeout)
			}
			unfinished := n.clock.Now() // whose other pages the lost one may have
			c.Positions.RecordPage("jane", unfinished, 0, false, map[string]string{"uid": "100"})
			c.knows(t, "a list with pages elsewhere, perhaps", unfinished, false)
			time.Sleep(2 * greetEvery)
			synctest.Wait()
			began = time.Now()
			c.knows(t, "when it is known to be lost", n.clock.Now(), false)
			if took := time.Since(began); took > 0 {
				t.Errorf("the answer took %s, want none of the time that a lost one takes", took)
			}
			c.knows(t, "a list with pages elsewhere, perhaps", unfinished, false)
			b.end()
			time.Sleep(lostPeer + 2*greetEvery)
			synctest.Wait()
			unfinished = n.clock.Now()
			c.Positions.RecordPage("jane", unfinished, 0, false, map[string]string{"uid": "100"})
			c.knows(t, "when nothing of it could be known any more", unfinished, true)
		})
	}
}

// TestDrainTellsPeers has a drain that takes long: what is new goes to peers every second,
// and peers ask meanwhile.
func TestDrainTellsPeers(t *testing.T) {
	inNetwork(t, func(t *testing.T, n *network) {
		a := n.start(t, 1)
		b := n.start(t, 2, a)
		time.Sleep(time.Second)
		done, drained := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(drained)
			a.Drain(t.Context(), done)
		}()
		first := n.list(a)
		time.Sleep(tellEvery)
		synctest.Wait()
		second := n.list(a)
		b.knows(t, "while it drains", second, true)
		n.freeze(a.address, true) // killed
		b.knows(t, "a second ago", first, true)
		b.knows(t, "just now", second, false)
		n.freeze(a.address, false)
		close(done)
		<-drained
		a.end()
		b.knows(t, "when it has ended", second, true)
		if _, all := b.Live(); !all {
			t.Error("a replica that has said goodbye counts as lost")
		}
	})
}

// TestPeersBehindOneAddress has a name that stands for a load balancer.
func TestPeersBehindOneAddress(t *testing.T) {
	inNetwork(t, func(t *testing.T, n *network) {
		balanced := &apiReplica{address: "10.0.0.100:9093"}
		all := []*apiReplica{n.start(t, 1, balanced), n.start(t, 2, balanced), n.start(t, 3, balanced)}
		n.set(balanced.address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all[rand.IntN(len(all))].Routes().ServeHTTP(w, r)
		}))
		time.Sleep(20 * greetEvery)
		synctest.Wait()
		for _, r := range all {
			at := n.list(r)
			for _, other := range all {
				other.knows(t, "a list", at, true)
			}
		}
	})
}

// TestBrokenPeers has peers that answer nonsense, and refuse what they are told.
func TestBrokenPeers(t *testing.T) {
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		refuses bool
	}{
		"nonsense": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "nonsense") }, false},
		"endless":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, position.MaxMessage+1)) }, true},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://10.0.0.2:9093/positions", http.StatusFound)
		}, true},
		"refusal": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, true},
		"addresses": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"id":"evil","addresses":["x","1.2.3.4:99999","example.com:9093","/:0"]}`)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inNetwork(t, func(t *testing.T, n *network) {
				evil := n.start(t, 1)
				good := n.start(t, 2, evil)
				time.Sleep(time.Second)
				n.set(evil.address, test.answer)
				good.knows(t, "a version of nobody", n.clock.Now(), false)
				good.knows(t, "its own", n.list(good), true)
				if err := good.tellAll(t.Context()); (err != nil) != test.refuses {
					t.Errorf("handing over: got error %v, want one: %v", err, test.refuses)
				}
				time.Sleep(2 * greetEvery)
				synctest.Wait()
				if len(good.Known) > 2 {
					t.Errorf("got %d addresses, want 2", len(good.Known))
				}
			})
		})
	}
}

// TestManyAddresses greets from more addresses than there can be replicas.
func TestManyAddresses(t *testing.T) {
	inNetwork(t, func(t *testing.T, n *network) {
		r := n.start(t, 1)
		for i := range 2 * maxPeers {
			g := greeting{ID: strconv.Itoa(i), Port: 1 + i}
			if answer := r.greetedBy(g, net.JoinHostPort("10.1.0.1", strconv.Itoa(g.Port))); len(answer.Addresses) > maxPeers {
				t.Fatalf("got %d addresses, want %d at most", len(answer.Addresses), maxPeers)
			}
		}
		if len(r.Known) > maxPeers {
			t.Errorf("got %d addresses, want %d at most", len(r.Known), maxPeers)
		}
	})
}
