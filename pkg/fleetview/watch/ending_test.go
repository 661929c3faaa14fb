package watch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

func TestRefusals(t *testing.T) {
	eachForm(t, func(t *testing.T, wants func(*Options)) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a, b)
		a.refuse, b.refuse = http.StatusForbidden, http.StatusNotFound
		c := f.watch(wants)
		<-c.done
		if c.code != http.StatusForbidden || !strings.Contains(c.body.String(), "a says 403") {
			t.Errorf("when all refuse: got %d %s, want a's 403", c.code, c.body.String())
		}
		b.with(func() { b.refuse = 0 })
		c = f.watch(wants)
		defer c.stop()
		diff(t, "when one refuses", []string{"ADDED b/x"}, c.events())
		if got, want := fmt.Sprint(c.header["Warning"]), `[299 - "cluster a refused (a says 403); its objects are not shown"]`; got != want {
			t.Errorf("got warnings %s, want %s", got, want)
		}
		a.with(func() { a.refuse = 0 })
		a.asked()
		time.Sleep(refusedPause - time.Second)
		if got := a.asked(); len(got) > 0 {
			t.Errorf("got requests %q within 29 s, want none", got)
		}
		time.Sleep(time.Second)
		diff(t, "after 30 s", []string{"ADDED a/x"}, c.events())
	})
}

// TestRefusalsAfterARestart has a cluster that was watched go away for a minute, and refuse
// everybody for a moment when it is back, as a kube-apiserver does that has just started.
func TestRefusalsAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster("a", "x")
		c := newFixture(t, a, newCluster("b")).watch(same)
		defer c.stop()
		diff(t, "before", []string{"ADDED a/x"}, c.events())
		a.with(func() { a.away = true })
		a.cut(false)
		time.Sleep(time.Minute)
		a.set("y")
		a.with(func() { a.away, a.refuse = false, http.StatusForbidden })
		time.Sleep(maxBackoff)
		a.with(func() { a.refuse = 0 })
		time.Sleep(maxBackoff)
		diff(t, "10 s after it accepts again", []string{"ADDED a/y"}, c.events())
	})
}

// TestRefusalsAfterAWatch has a cluster refuse from the middle of a watch on, for ever: it is not
// asked more often for long.
func TestRefusalsAfterAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster("a", "x")
		c := newFixture(t, a, newCluster("b")).watch(same)
		defer c.stop()
		c.events()
		a.with(func() { a.refuse = http.StatusForbidden })
		a.cut(false)
		a.asked()
		time.Sleep(time.Minute)
		if got := a.asked(); len(got) < 5 || len(got) > 7 {
			t.Errorf("got %d requests in the first minute, want 6 or so", len(got))
		}
		time.Sleep(10 * refusedPause)
		if got := a.asked(); len(got) != 10 {
			t.Errorf("got %d requests in the next five minutes, want 10", len(got))
		}
	})
}

func TestWarningsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCluster("a"))
		for i := range 13 {
			f.clusters = append(f.clusters, newCluster(fmt.Sprint("edge-", i)))
			f.clusters[i+1].away = true
		}
		c := f.watch(same)
		synctest.Wait()
		c.stop()
		got := c.header["Warning"]
		if len(got) != fault.MaxNamed+1 || got[10] != `299 - "3 more clusters did not answer; their objects are not shown"` {
			t.Errorf("got %q, want 10 and a count", got)
		}
		if want := `299 - "cluster edge-0 did not answer (no tunnel since 10:02); its objects are not shown"`; got[0] != want {
			t.Errorf("got %s, want %s", got[0], want)
		}
	})
}

func TestBookmarks(t *testing.T) {
	eachForm(t, func(t *testing.T, wants func(*Options)) {
		a, b := newCluster("a", "x"), newCluster("b")
		f := newFixture(t, a, b)
		drain := make(chan struct{})
		c := f.watch(func(o *Options) { wants(o); o.Bookmarks, o.Draining = true, drain })
		c.events()
		time.Sleep(10 * time.Minute)
		c.events()
		time.Sleep(10 * time.Minute)
		diff(t, "nothing new", nil, c.events())
		b.bookmark()
		time.Sleep(bookmarkEvery)
		diff(t, "a member's position is new", []string{"BOOKMARK"}, c.events())
		close(drain)
		<-c.done
		diff(t, "the last event", []string{"BOOKMARK"}, c.events())

		a.set("y")
		next := f.watch(func(o *Options) { wants(o); o.ResourceVersion, o.Bookmarks, o.Timeout = c.last, true, time.Minute })
		diff(t, "from there", []string{"ADDED a/y"}, next.events())
		<-next.done
		diff(t, "at the timeout", []string{"BOOKMARK"}, next.events())
	})
}

// TestUnknownObjects has clusters that leave, and forget, while it is not known which of
// their objects the client has.
func TestUnknownObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a, b)
		at := f.listed()
		list := func(o *Options) { o.ResourceVersion = at.String() }

		c := f.watch(list)
		b.set("y")
		diff(t, "a change", []string{"ADDED b/y"}, c.events())
		a.with(func() { a.away = true })
		a.cut(true)
		time.Sleep(time.Minute)
		diff(t, "a is away", nil, c.events())
		a.remove("x")
		a.with(func() { a.away, a.oldest = false, a.now })
		time.Sleep(2 * maxBackoff)
		diff(t, "a is back, and has forgotten the version", []string{encoding.Failed}, c.events())
		<-c.done

		b.with(func() { b.frozen = true }) // its answer does not matter any more
		c = f.watch(list)
		<-c.done
		if c.code != http.StatusGone {
			t.Errorf("a has forgotten the version of the list: got %d, want 410", c.code)
		}
		b.with(func() { b.frozen = false })

		f.set(b)
		c = f.watch(list)
		<-c.done
		if c.code != http.StatusGone {
			t.Errorf("a has left since the list: got %d, want 410", c.code)
		}
	})
}

// TestSlowClient has a client that takes nothing.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a"), newCluster("b")
		f := newFixture(t, a, b)
		slow, quick := f.watch(same), f.watch(same)
		defer quick.stop()
		synctest.Wait()
		block := make(chan struct{})
		slow.block(block)
		name := strings.Repeat("n", 1000)
		for range 1200 {
			a.set(name)
			if got := len(quick.events()); got != 1 {
				t.Fatalf("got %d events in another stream, want 1", got)
			}
		}
		time.Sleep(stallTimeout)
		synctest.Wait()
		a.asked()
		a.cut(false)
		time.Sleep(time.Hour)
		if got := a.asked(); len(got) != 1 {
			t.Errorf("got %d requests after the stream was given up, want 1, of the other stream: %q", len(got), got)
		}
		close(block)
		<-slow.done
	})
}

// TestInitialBookmarkIsTyped has a view without clusters: a bookmark without a kind would
// end an informer's watch.
func TestInitialBookmarkIsTyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.watch(func(o *Options) { o.SendInitialEvents = new(true) })
		defer c.stop()
		diff(t, "while no kind is known", nil, c.events())
		f.set(newCluster("a"))
		time.Sleep(membersEvery)
		diff(t, "when an empty list has told it", []string{"BOOKMARK initial"}, c.events())
	})
}
