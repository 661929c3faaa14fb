package watch

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// forInformers makes a watch one that asks for initial events, in a view that waits a minute
// for its clusters.
func forInformers(o *Options) {
	o.SendInitialEvents, o.Bookmarks, o.InformerTimeout = new(true), true, time.Minute
}

// TestInitialBookmarkWaits has a cluster that is away when a client asks for initial events. Its
// objects come before the bookmark behind them: a client that has them already would
// otherwise delete them.
func TestInitialBookmarkWaits(t *testing.T) {
	for name, fault := range map[string]func(c *cluster, on bool){
		"no tunnel":     func(c *cluster, on bool) { c.away = on },
		"frozen":        func(c *cluster, on bool) { c.frozen = on },
		"it is failing": func(c *cluster, on bool) { c.refuse = map[bool]int{true: 500}[on] },
		"it sends a part": func(c *cluster, on bool) {
			c.initial = map[bool]initialEvents{true: brokenUnmarked, false: allInitial}[on]
			c.refuseLists = map[bool]int{true: 503}[on]
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, wants func(*Options)) {
				a, b := newCluster("a", "x"), newCluster("b", "x", "y")
				a.initial = allInitial
				b.with(func() { fault(b, true) })
				c := newFixture(t, a, b).watch(func(o *Options) { wants(o); forInformers(o) })
				defer c.stop()
				time.Sleep(45 * time.Second)
				got := c.events()
				if slices.ContainsFunc(got, isInitialEnd) || !slices.Contains(got, "ADDED a/x") {
					t.Fatalf("got %q while b is away, want a's object and no bookmark behind the initial events", got)
				}
				b.with(func() { fault(b, false) })
				time.Sleep(2 * maxBackoff)
				got = withoutMarks(append(got, c.events()...))
				diff(t, "when b is back", []string{"ADDED a/x", "ADDED b/x", "ADDED b/y", "BOOKMARK initial"}, sorted(slices.Compact(sorted(got))))
				if !isInitialEnd(got[len(got)-1]) {
					t.Errorf("got %q, want the bookmark at the end", got)
				}
			})
		})
	}
}

// TestInitialBookmarkNamesWhatIsMissing has clusters that stay away for longer than the view
// waits. The bookmark comes without their objects, and says of which clusters.
func TestInitialBookmarkNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, frozen, none := newCluster("a", "x"), newCluster("b", "x"), newCluster("c", "x"), newCluster("d")
		b.away, frozen.frozen, none.refuse = true, true, http.StatusNotFound
		e := newCluster("e", "x")
		e.away = true
		f := newFixture(t, a, b, frozen, none, e)
		c := f.watch(forInformers)
		defer c.stop()
		time.Sleep(time.Minute - time.Second)
		if got := c.events(); slices.ContainsFunc(got, isInitialEnd) {
			t.Fatalf("got %q before the minute is over, want no bookmark behind the initial events", got)
		}
		time.Sleep(2 * time.Second)
		diff(t, "after a minute", []string{"BOOKMARK initial lacks b,c,e"}, c.events())
		b.with(func() { b.away = false })
		time.Sleep(2 * maxBackoff)
		diff(t, "when b is back", []string{"ADDED b/x", "BOOKMARK lacks c,e"}, c.events())
		f.set(a, b, frozen, none)
		time.Sleep(membersEvery)
		diff(t, "when e has left the view", []string{"BOOKMARK lacks c"}, c.events())
		frozen.with(func() { frozen.frozen = false })
		time.Sleep(2 * maxBackoff)
		diff(t, "when all are back", []string{"ADDED c/x", "BOOKMARK"}, c.events())
	})
}

// TestMissingIsNamedWhenResumed goes on at a version at which a cluster had no part: the client
// is told when it has one.
func TestMissingIsNamedWhenResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a)
		at := f.listed()
		b.away = true
		f.set(a, b)
		c := f.watch(func(o *Options) { o.ResourceVersion, o.Bookmarks = at.String(), true })
		defer c.stop()
		a.set("y")
		diff(t, "while b is away", []string{"ADDED a/y"}, c.events())
		b.with(func() { b.away = false })
		time.Sleep(2 * maxBackoff)
		diff(t, "when b is back", []string{"ADDED b/x", "BOOKMARK"}, c.events())
	})
}

// TestRefusalsAreBelievedSlowly has a kube-apiserver that has just started, which refuses
// everybody, and one that refuses for good.
func TestRefusalsAreBelievedSlowly(t *testing.T) {
	for name, test := range map[string]struct {
		lasts, within time.Duration
		want          []string
	}{
		"it has just started": {2 * time.Second, 10 * time.Second, []string{"ADDED a/x", "ADDED b/x", "BOOKMARK initial"}},
		"it refuses":          {time.Hour, 12 * time.Second, []string{"ADDED a/x", "BOOKMARK initial lacks b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newCluster("a", "x"), newCluster("b", "x")
				b.refuse = http.StatusForbidden
				time.AfterFunc(test.lasts, func() { b.with(func() { b.refuse = 0 }) })
				c := newFixture(t, a, b).watch(forInformers)
				defer c.stop()
				time.Sleep(test.within)
				diff(t, "events", test.want, c.events())
			})
		})
	}
}

// TestInitialBookmarkFails has a view that is all or nothing, and a cluster whose objects break
// off when the answer has begun: the stream ends with an error, after which informers keep what they have.
func TestInitialBookmarkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b")
		for i := range pageSize + 1 {
			b.set(fmt.Sprintf("x%04d", i))
		}
		a.initial, b.initial, b.refuseLists = allInitial, brokenUnmarked, http.StatusServiceUnavailable
		c := newFixture(t, a, b).watch(func(o *Options) { forInformers(o); o.FailWhenUnreachable = true })
		defer c.stop()
		synctest.Wait()
		b.with(func() { b.away = true })
		time.Sleep(2 * time.Minute)
		if got := withoutMarks(c.events()); got[len(got)-1] != encoding.Failed || slices.ContainsFunc(got, isInitialEnd) {
			t.Errorf("got %d events up to %q, want an ERROR at the end and no bookmark behind the initial events", len(got), got[len(got)-1])
		}
	})
}

// TestWaitingStreamIsNotSilent wants something to come while the bookmark waits: what is
// between a client and the view may cut off a connection on which nothing does.
func TestWaitingStreamIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b")
		b.away = true
		c := newFixture(t, a, b).watch(forInformers)
		defer c.stop()
		synctest.Wait()
		for range 3 {
			c.events()
			time.Sleep(20 * time.Second)
			if got := c.events(); len(got) == 0 {
				t.Error("nothing has come for 20 s")
			}
		}
	})
}

// TestInitialEventsOfAnyVersion asks for initial events from versions that cannot be resumed: after
// 410 a client forgets that it had objects.
func TestInitialEventsOfAnyVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCluster("a", "x"))
		ahead := f.options.Clock.Now()
		ahead.Time += time.Hour.Microseconds()
		for _, at := range []string{"", "0", "101", ahead.String()} {
			c := f.watch(func(o *Options) { forInformers(o); o.ResourceVersion = at })
			diff(t, "from version "+at, []string{"ADDED a/x", "BOOKMARK initial"}, c.events())
			c.stop()
		}
	})
}
