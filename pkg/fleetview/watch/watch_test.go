package watch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func same(*Options) {}

// sorted is for events of several members, whose order is open.
func sorted(events []string) []string { return slices.Sorted(slices.Values(events)) }

// eachForm runs a test in a bubble for each form but Tables.
func eachForm(t *testing.T, test func(t *testing.T, wants func(*Options))) {
	for _, form := range []encoding.Form{{}, {As: encoding.AsMetadata, Version: "v1"}} {
		t.Run(form.NewCodec().Media().Watch, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, func(o *Options) { o.Forms = []encoding.Form{form} })
			})
		})
	}
}

func diff(t *testing.T, what string, want, got []string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestExistingObjectsThenEvents(t *testing.T) {
	for _, at := range []string{"", "0"} {
		eachForm(t, func(t *testing.T, wants func(*Options)) {
			a, b := newCluster("a", "x", "y", "z"), newCluster("b", "x")
			c := newFixture(t, a, b).watch(func(o *Options) { wants(o); o.ResourceVersion = at })
			defer c.stop()
			diff(t, "at first", []string{"ADDED a/x", "ADDED a/y", "ADDED a/z", "ADDED b/x"}, sorted(c.events()))
			b.set("x")
			diff(t, "an update", []string{"MODIFIED b/x"}, c.events())
			a.remove("y")
			diff(t, "a removal", []string{"DELETED a/y"}, c.events())
			b.set("new")
			b.bookmark()
			diff(t, "a new one", []string{"ADDED b/new"}, c.events())
			if c.code != http.StatusOK || len(c.header["Warning"]) > 0 {
				t.Errorf("got %d with warnings %q, want 200 without", c.code, c.header["Warning"])
			}
		})
	}
}

func TestInitialEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, frozen := newCluster("a", "x"), newCluster("b"), newCluster("frozen", "x")
		frozen.frozen = true
		c := newFixture(t, a, b, frozen).watch(func(o *Options) { o.SendInitialEvents, o.Bookmarks = new(true), true })
		defer c.stop()
		diff(t, "while a member may still answer", nil, c.events())
		time.Sleep(5 * time.Second)
		diff(t, "then", []string{"ADDED a/x", "BOOKMARK initial lacks frozen"}, c.events())
		want := []string{`299 - "cluster frozen did not answer (no answer within the view's timeout); its objects are not shown"`}
		if got := c.header["Warning"]; !slices.Equal(got, want) {
			t.Errorf("got warnings %q, want %q", got, want)
		}
		frozen.with(func() { frozen.frozen = false })
		time.Sleep(30 * time.Second)
		diff(t, "when it answers again", []string{"ADDED frozen/x", "BOOKMARK"}, c.events())
	})
}

// sixEvents are those of objects that two clusters get in turns, and the versions that a stream
// has before each and after the last.
func sixEvents(t *testing.T, c *client, a, b *cluster) (versions, want []string) {
	t.Helper()
	c.events()
	versions = []string{c.last}
	for i := range 6 {
		m := []*cluster{a, b}[i%2]
		m.set(fmt.Sprint("n", i))
		want = append(want, fmt.Sprintf("ADDED %s/n%d", m.name, i))
		diff(t, "an event", want[i:], c.events())
		versions = append(versions, c.last)
	}
	return versions, want
}

// TestResume goes on from each version that a stream has given out.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a, b)
		c := f.watch(func(o *Options) { o.SendInitialEvents = new(true) })
		versions, want := sixEvents(t, c, a, b)
		for _, live := range []bool{true, false} {
			if !live {
				c.stop()
			}
			for i, at := range versions {
				next := f.watch(func(o *Options) { o.ResourceVersion = at })
				diff(t, fmt.Sprintf("from version %d, stream alive %v", i, live), sorted(want[i:]), sorted(next.events()))
				next.stop()
			}
		}
		time.Sleep(position.TTL + time.Second)
		late := f.watch(func(o *Options) { o.ResourceVersion = versions[3] })
		late.stop()
		if late.code != http.StatusGone {
			t.Errorf("after 5 minutes: got %d, want 410", late.code)
		}
	})
}

// TestResumeWithoutAMember goes on while a member has never answered: it has sent no part of
// a list.
func TestResumeWithoutAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, away := newCluster("a", "x"), newCluster("away", "x")
		away.away = true
		f := newFixture(t, a, away)
		f.options.Bookmarks = true
		c := f.watch(func(o *Options) { o.SendInitialEvents = new(true) })
		diff(t, "at first", []string{"ADDED a/x", "BOOKMARK initial lacks away"}, c.events())
		initial := c.last
		time.Sleep(2 * maxBackoff) // it is asked for a list
		a.set("y")
		diff(t, "an event of the other", []string{"ADDED a/y"}, c.events())
		newest := c.last
		a.bookmark()
		time.Sleep(bookmarkEvery)
		diff(t, "a position of the other", []string{"BOOKMARK lacks away"}, c.events())
		c.stop()
		for at, want := range map[string][]string{initial: {"ADDED a/y"}, newest: nil} {
			c = f.watch(func(o *Options) { o.ResourceVersion = at })
			diff(t, "when the client comes back", want, c.events())
			c.stop()
		}
		away.with(func() { away.away = false })
		c = f.watch(func(o *Options) { o.ResourceVersion = newest })
		defer c.stop()
		diff(t, "when the member answers", []string{"ADDED away/x", "BOOKMARK"}, c.events())
	})
}

func TestResumeFromList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x", "y"), newCluster("b", "x")
		f := newFixture(t, a, b)
		at := f.listed()
		b.set("new")
		c := f.watch(func(o *Options) { o.ResourceVersion = at.String() })
		defer c.stop()
		diff(t, "since the list", []string{"ADDED b/new"}, c.events())
		joined := newCluster("joined", "x")
		f.set(a, b, joined)
		time.Sleep(membersEvery)
		diff(t, "when another one joins", []string{"ADDED joined/x"}, c.events())
		joined.cut(true)
		joined.remove("x")
		joined.with(func() { joined.oldest = joined.now })
		time.Sleep(2 * maxBackoff)
		diff(t, "when it forgets", []string{"DELETED joined/x"}, c.events())
		joined.set("y")
		diff(t, "then", []string{"ADDED joined/y"}, c.events())
		f.set(a, b)
		time.Sleep(membersEvery)
		diff(t, "when it leaves", []string{"DELETED joined/y"}, c.events())
	})
}

// TestResumeListsNobody goes on from one list again and again, as informers do when the replica
// that they watched at is replaced.
func TestResumeListsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clusters []*cluster
		for i := range 50 {
			clusters = append(clusters, newCluster(fmt.Sprint("c", i), "x"))
		}
		f := newFixture(t, clusters...)
		at := f.listed().String()
		for range 20 {
			defer f.watch(func(o *Options) { o.ResourceVersion = at }).stop()
		}
		time.Sleep(10 * time.Second)
		for _, m := range clusters {
			for _, query := range m.asked() {
				if !strings.Contains(query, "watch=1") {
					t.Fatalf("got the request %q, want watches only", query)
				}
			}
		}
	})
}

func TestVersionsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCluster("a"))
		now := f.options.Clock.Next()
		known := now + (9 * time.Second).Microseconds()
		f.options.Positions.RecordPage("jane", version.Version{Time: known}, 0, true, map[string]string{f.clusters[0].uid: "100"})
		for at, want := range map[string]int{
			"5": http.StatusGone, "x": http.StatusBadRequest, version.Version{Time: now - 1e6 + 2e6}.String(): http.StatusGone,
			version.Version{Time: known}.String(): http.StatusOK, version.Version{Time: now + 60e6}.String(): http.StatusGone,
		} {
			c := f.watch(func(o *Options) { o.ResourceVersion = at })
			synctest.Wait()
			c.stop()
			if c.code != want {
				t.Errorf("version %q: got %d, want %d", at, c.code, want)
			}
			if body := c.body.String(); want == http.StatusGone && !strings.Contains(body, `"reason":"Expired"`) {
				t.Errorf("version %q: got %s, want a Status with reason Expired", at, body)
			}
		}
		if got := f.options.Clock.Next(); got <= known {
			t.Errorf("the clock is at %d, want more than the version of a client, %d", got, known)
		}
	})
}

func TestJoinLeaveReplace(t *testing.T) {
	eachForm(t, func(t *testing.T, wants func(*Options)) {
		a, b := newCluster("a", "x"), newCluster("b", "x", "y")
		f := newFixture(t, a)
		c := f.watch(wants)
		defer c.stop()
		diff(t, "at first", []string{"ADDED a/x"}, c.events())
		f.set(a, b)
		time.Sleep(membersEvery)
		diff(t, "b joins", []string{"ADDED b/x", "ADDED b/y"}, c.events())
		f.set(a)
		time.Sleep(membersEvery)
		diff(t, "b leaves", []string{"DELETED b/x", "DELETED b/y"}, sorted(c.events()))
		other := newCluster("a", "x")
		other.uid = "another"
		f.set(other)
		time.Sleep(membersEvery)
		diff(t, "a is replaced", []string{"DELETED a/x", "ADDED a/x"}, c.events())
	})
}

func TestDifferenceAfter410(t *testing.T) {
	for _, inStream := range []bool{false, true} {
		eachForm(t, func(t *testing.T, wants func(*Options)) {
			a, b := newCluster("a", "same", "changed", "removed", "made again"), newCluster("b")
			c := newFixture(t, a, b).watch(wants)
			defer c.stop()
			c.events()
			if inStream {
				a.with(func() { a.gone = true })
			}
			a.with(func() { a.away = true })
			a.cut(!inStream)
			synctest.Wait()
			a.set("changed")
			a.remove("removed")
			a.remove("made again")
			a.set("made again")
			a.set("added")
			a.with(func() { a.oldest = a.now; a.away = false })
			time.Sleep(time.Minute)
			a.with(func() { a.gone = false })
			time.Sleep(time.Minute)
			want := []string{"ADDED a/added", "ADDED a/made again", "DELETED a/made again", "DELETED a/removed", "MODIFIED a/changed"}
			diff(t, "the difference", want, sorted(c.events()))
			b.set("x")
			a.set("same")
			diff(t, "after it", []string{"ADDED b/x", "MODIFIED a/same"}, sorted(c.events()))
		})
	}
}

func TestBrokenStreamIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b")
		c := newFixture(t, a, b).watch(same)
		defer c.stop()
		c.events()
		for i := range 5 {
			a.cut(false)
			a.set(fmt.Sprint("n", i))
			b.set(fmt.Sprint("n", i))
			diff(t, "of the other", []string{fmt.Sprintf("ADDED b/n%d", i)}, c.events())
			time.Sleep(maxBackoff)
			diff(t, "when it is asked again", []string{fmt.Sprintf("ADDED a/n%d", i)}, c.events())
		}
	})
}

func TestEvilMember(t *testing.T) {
	for name, raw := range map[string]string{
		"nonsense": "nonsense\n", "endless": strings.Repeat("x", encoding.MaxEvent+1), "type": `{"type":"MADE","object":{}}` + "\n", "no object": `{"type":"ADDED"}` + "\n",
		"not whole": `{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"x"}}` + "\n", "array": `{"type":"ADDED","object":[]}` + "\n", "ERROR": `{"type":"ERROR","object":{"code":500}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				evil, good := newCluster("evil"), newCluster("good", "x")
				evil.raw = raw
				c := newFixture(t, evil, good).watch(same)
				defer c.stop()
				diff(t, "at first", []string{"ADDED good/x"}, c.events())
				good.set("x")
				time.Sleep(time.Second)
				diff(t, "an event of the other", []string{"MODIFIED good/x"}, c.events())
				evil.with(func() { evil.raw = "" })
				evil.set("y")
				time.Sleep(2 * maxBackoff)
				diff(t, "when it is good again", []string{"ADDED evil/y"}, c.events())
			})
		})
	}
}
