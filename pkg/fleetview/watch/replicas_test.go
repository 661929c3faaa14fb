package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// replicas are processes that serve one view. They ask each other, but for those that have
// ended.
type replicas struct {
	all   []*fixture
	ended map[*fixture]bool
	// silent says that one of them does not answer.
	silent bool
}

func newReplicas(t *testing.T, n int, clusters ...*cluster) *replicas {
	r := &replicas{ended: map[*fixture]bool{}}
	for range n {
		r.add(t, clusters...)
	}
	return r
}

func (r *replicas) add(t *testing.T, clusters ...*cluster) *fixture {
	f := newFixture(t, clusters...)
	f.options.Clock.Replica = uint32(len(r.all) + 1)
	f.options.Positions.Ask = func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
		for _, other := range r.all {
			if other != f && !r.ended[other] && take(other.options.Positions.Answer(v, owner)) {
				break
			}
		}
		return !r.silent
	}
	r.all = append(r.all, f)
	return f
}

// end hands over what a replica knows, and ends it.
func (r *replicas) end(t *testing.T, f *fixture) {
	t.Helper()
	r.ended[f] = true
	for _, other := range r.all {
		if !r.ended[other] {
			passOn(t, f.options.Positions, other.options.Positions)
		}
	}
}

// TestOtherReplica goes on from each version that a stream has given out, on a replica that
// asks the one with the stream, and on one that was told when the stream's replica ended.
func TestOtherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		r := newReplicas(t, 3, a, b)
		first := r.all[0]
		c := first.watch(func(o *Options) { o.SendInitialEvents, o.Bookmarks = new(true), true })
		versions, want := sixEvents(t, c, a, b)
		check := func(what string) {
			for _, f := range r.all[1:] {
				for i, at := range versions {
					next := f.watch(func(o *Options) { o.ResourceVersion = at })
					diff(t, fmt.Sprintf("from version %d, %s", i, what), sorted(want[i:]), sorted(next.events()))
					next.stop()
				}
			}
		}
		check("the stream is alive")
		c.stop()
		check("the stream has ended")
		time.Sleep(position.TTL - time.Second)
		r.end(t, first)
		check("its replica has ended")
		// A replica that begins now asks those that were told.
		r.all = append(r.all[:1], r.add(t, a, b), r.all[1])
		check("a replica has begun since")
		time.Sleep(2 * time.Second)
		late := r.all[2].watch(func(o *Options) { o.ResourceVersion = versions[0] })
		synctest.Wait()
		late.stop()
		if late.code != http.StatusOK {
			t.Errorf("from the version of a stream of this replica: got %d, want 200", late.code)
		}
		time.Sleep(position.TTL)
		late = r.all[2].watch(func(o *Options) { o.ResourceVersion = versions[3] })
		late.stop()
		if late.code != http.StatusGone {
			t.Errorf("after 5 minutes: got %d, want 410", late.code)
		}
	})
}

// follower is a client that reads its stream as an informer does: by the objects, and the
// newest version.
type follower struct {
	store map[string]string
	last  string
}

// follow reads a stream's events.
func (f *follower) follow(t *testing.T, c *client) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range decoded(t, c.body.Bytes()) {
		object, ok := e.Object.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("got an event %s of %T, want one of a ConfigMap", e.Type, e.Object.Object)
		}
		if object.ResourceVersion <= f.last {
			t.Errorf("%s %s: version %s is not greater than %s", e.Type, object.Name, object.ResourceVersion, f.last)
		}
		f.last = object.ResourceVersion
		key := object.Annotations["cluster"] + "/" + object.Name
		before, had := f.store[key]
		now := object.Data["version"]
		switch {
		case e.Type == encoding.Bookmark:
			continue
		case (e.Type == encoding.Added) == had:
			t.Errorf("%s %s, had it: %v", e.Type, key, had)
		case e.Type == encoding.Modified && len(now) <= len(before) && now <= before:
			t.Errorf("%s %s: got its version %s after %s", e.Type, key, now, before)
		}
		if f.store[key] = now; e.Type == encoding.Deleted {
			delete(f.store, key)
		}
	}
	c.body.Reset()
}

// TestRollingRestart replaces two replicas, one by one, again and again under writes. A
// client goes on elsewhere each time.
func TestRollingRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		clusters := []*cluster{newCluster("a", "x"), newCluster("b", "x"), newCluster("c", "x")}
		write := func() {
			for range random.IntN(10) {
				m := clusters[random.IntN(len(clusters))]
				name := fmt.Sprint("n", random.IntN(8))
				if _, ok := m.objects[name]; ok && random.IntN(2) == 0 {
					m.remove(name)
				} else {
					m.set(name)
				}
			}
		}
		r := newReplicas(t, 2, clusters...)
		f := &follower{store: map[string]string{}}
		drain := make(chan struct{})
		c := r.all[0].watch(func(o *Options) { o.SendInitialEvents, o.Bookmarks, o.Draining = new(true), true, drain })
		f.follow(t, c)
		for round := range 20 {
			write()
			f.follow(t, c)
			old := r.all[round]
			write()
			close(drain)
			<-c.done
			f.follow(t, c)
			write() // while it follows nothing
			r.add(t, clusters...)
			if random.IntN(2) == 0 {
				r.end(t, old)
			}
			write()
			drain = make(chan struct{})
			c = r.all[round+1].watch(func(o *Options) { o.ResourceVersion, o.Bookmarks, o.Draining = f.last, true, drain })
			f.follow(t, c)
			if !r.ended[old] {
				r.end(t, old)
			}
			if c.code != http.StatusOK {
				t.Fatalf("round %d: got %d, want 200", round, c.code)
			}
			time.Sleep(time.Second)
		}
		c.stop()
		want := map[string]string{}
		for _, m := range clusters {
			for name, o := range m.objects {
				want[m.name+"/"+name] = o.Data["version"]
			}
		}
		if got := fmt.Sprint(f.store); got != fmt.Sprint(want) {
			t.Errorf("at the end the client has %s, want %v", got, want)
		}
	})
}

// TestSameTime has two replicas that have given out versions of one time.
func TestSameTime(t *testing.T) {
	a := newCluster("a")
	r := newReplicas(t, 3, a)
	const at = 1_795_381_200_000_000
	for i, f := range r.all {
		f.options.Positions.RecordPage("jane", version.Version{Time: at, Replica: uint32(i + 1)}, 0, true, map[string]string{a.uid: fmt.Sprint(100 + i)})
	}
	for _, f := range r.all {
		for i := range r.all {
			v := version.Version{Time: at, Replica: uint32(i + 1), Cluster: 7, Member: 7}
			if got, ok := f.options.Positions.Find(t.Context(), v, "jane"); !ok || got[a.uid] != fmt.Sprint(100+i) {
				t.Errorf("version of replica %d: got %v, %v, want %d", i+1, got, ok, 100+i)
			}
		}
	}
}

// TestReplicaAhead has a replica whose clock is ahead of the others'.
func TestReplicaAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster("a", "x")
		r := newReplicas(t, 2, a)
		r.all[0].options.Clock.After(time.Now().Add(time.Hour).UnixMicro())
		c := r.all[0].watch(same)
		diff(t, "on the one that is ahead", []string{"ADDED a/x"}, c.events())
		c.stop()
		next := r.all[1].watch(func(o *Options) { o.ResourceVersion = c.last })
		defer next.stop()
		next.last = c.last // versions grow
		a.set("y")
		diff(t, "on the other one", []string{"ADDED a/y"}, next.events())
	})
}

// TestPagesOfReplicas lists pages on two replicas.
func TestPagesOfReplicas(t *testing.T) {
	for _, test := range []struct {
		name   string
		pages  [2][]int
		silent bool
		last   bool
		want   bool
	}{
		{"all on another one", [2][]int{nil, {0, 1}}, true, true, true},
		{"one on each", [2][]int{{0}, {1}}, true, true, true},
		{"the last one here", [2][]int{{1}, {0}}, true, true, true},
		{"one is lost", [2][]int{nil, {1}}, true, true, false},
		{"one was never asked for", [2][]int{{0}, nil}, false, false, true},
		{"one was asked for, perhaps", [2][]int{{0}, nil}, true, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReplicas(t, 2)
			r.silent = test.silent
			at := r.all[0].options.Clock.Now()
			want := map[string]string{}
			for i, pages := range test.pages {
				p := r.all[i].options.Positions
				for _, number := range pages {
					p.RecordPage("jane", at, number, test.last && number == 1, map[string]string{fmt.Sprint("uid-", number): fmt.Sprint(100 + number)})
					want[fmt.Sprint("uid-", number)] = fmt.Sprint(100 + number)
				}
			}
			got, ok := r.all[0].options.Positions.Find(t.Context(), at, "jane")
			if ok != test.want || ok && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, %v, want %v, %v", got, ok, want, test.want)
			}
			passOn(t, r.all[1].options.Positions, r.all[0].options.Positions)
			passOn(t, r.all[1].options.Positions, r.all[0].options.Positions)
			r.ended[r.all[1]] = true
			if got, ok := r.all[0].options.Positions.Find(t.Context(), at, "jane"); ok != test.want || ok && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("when the other one has ended: got %v, %v, want %v, %v", got, ok, want, test.want)
			}
		})
	}
}

// passOn tells another replica what a replica knows.
func passOn(t *testing.T, from, to *position.Store) {
	t.Helper()
	messages, _ := from.Export(0)
	for message := range messages {
		if err := to.Import(message); err != nil {
			t.Errorf("importing a message: %v", err)
		}
	}
}
