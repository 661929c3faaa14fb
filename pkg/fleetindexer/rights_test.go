package fleetindexer

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// TestRightsEnd takes a right away.
func TestRightsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		want := func(what string, reviews int) {
			t.Helper()
			if got := f.shown(t, "a"); got != what || f.clusters.reviews["a"] != reviews {
				t.Errorf("got %q after %d reviews, want %q after %d", got, f.clusters.reviews["a"], what, reviews)
			}
		}
		want("web-0", 1)
		f.clusters.decide["a"] = deny
		time.Sleep(freshFor - time.Nanosecond)
		want("web-0", 1)
		time.Sleep(time.Nanosecond)
		want("forbidden", 2)
		// A right that is given is there as soon.
		delete(f.clusters.decide, "a")
		want("forbidden", 2)
		time.Sleep(freshFor)
		want("web-0", 3)
		// Decisions are those of one caller with its groups, uid and extra, of one namespace and one cluster.
		for i, other := range []indexapi.Caller{{Name: "joe", Groups: jane.Groups}, {Name: "jane"}, {Name: "jane", Groups: jane.Groups, UID: "1"}, {Name: "jane", Groups: jane.Groups, Extra: map[string][]string{"a": {"b"}}}} {
			as, err := newCaller(other)
			if err != nil {
				t.Fatal(err)
			}
			p := f.rights.ask(t.Context(), as, fleetindex.Cluster{Name: "a", UID: "uid-a"}, []feed.Question{{Resource: pods, Verb: verbList}}, 1)
			if p.wait(t.Context()); p.asked != 1 || f.clusters.reviews["a"] != 4+i {
				t.Errorf("the decision about %+v was known", other)
			}
		}
		if _, err := newCaller(indexapi.Caller{Name: "jane\n"}); err == nil {
			t.Error("a user who cannot be asserted was taken")
		}
	})
}

// TestRightsWhileAway asks about a cluster that has gone.
func TestRightsWhileAway(t *testing.T) {
	for name, c := range map[string]struct {
		// then is what happens between the first answer and the time at which the cluster goes.
		then  func(*fixture)
		sleep time.Duration
		want  string
	}{
		"the last decision": {func(*fixture) {}, 0, "web-0 as of 00:00:00, remembered"},
		"for hours":         {func(*fixture) {}, 23 * time.Hour, "web-0 as of 00:00:00, remembered"},
		"and no longer":     {func(*fixture) {}, 25 * time.Hour, "unindexed: it is away, and had not decided"},
		"never":             {func(f *fixture) { f.rights.staleFor = 0 }, 0, "unindexed: it is away, and had not decided"},
		"a no is the last":  {func(f *fixture) { f.clusters.decide["a"] = deny }, 0, "forbidden"},
		"the owner refuses": {func(f *fixture) {
			f.clusters.decide["a"] = func(string, feed.Question) feed.Decision { return feed.Decision{Undecided: "403: no", Refused: true} }
		}, 0, "unindexed: it is away, and had not decided"},
		"its kube-apiserver went first": {func(f *fixture) {
			f.clusters.decide["a"] = func(string, feed.Question) feed.Decision { return feed.Decision{Undecided: "502: x"} }
		}, 0, "web-0 as of 00:00:00, remembered"},
		"its agent has just gone": {func(f *fixture) {
			f.clusters.fails["a"] = fmt.Errorf("dialing: %w", &tunnel.Error{Code: tunnel.NoAgent})
		}, -1, "web-0 as of 00:00:00, remembered"},
		"only its agent broke": {func(f *fixture) { f.clusters.fails["a"] = errors500{} }, -1, "unindexed: it has not decided"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.put(t, "a", printed("shop", "web-0"))
				if got := f.shown(t, "a"); got != "web-0" {
					t.Fatalf("got %q", got)
				}
				f.rights.kept.write(t.Context())
				c.then(f)
				time.Sleep(freshFor)
				f.shown(t, "a")
				if c.sleep >= 0 {
					f.clusters.fails["a"] = errAway
				}
				time.Sleep(freshFor + c.sleep)
				if got := f.shown(t, "a"); !strings.HasPrefix(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
				// It is not asked again at once.
				reviews := f.clusters.reviews["a"]
				if f.shown(t, "a"); f.clusters.reviews["a"] != reviews {
					t.Error("it was asked twice within 10 s")
				}
				// It comes back, and decides.
				delete(f.clusters.fails, "a")
				f.clusters.decide["a"] = deny
				time.Sleep(failedFor)
				if got := f.shown(t, "a"); got != "forbidden" {
					t.Errorf("after it came back: got %q", got)
				}
			})
		})
	}
}

// TestSlowCluster has a cluster that decides after the answer was sent.
func TestSlowCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		f.clusters.slow["a"] = 5 * time.Second
		began := time.Now()
		const late = "unindexed: it has not decided what the caller may list: it did not decide within 3s"
		if got := f.shown(t, "a"); got != late || time.Since(began) != decisionTimeout {
			t.Errorf("got %q after %s", got, time.Since(began))
		}
		// A later request waits for the rest of that time only.
		time.Sleep(time.Second)
		if got := f.shown(t, "a"); got != late || time.Since(began) != decisionTimeout+time.Second {
			t.Errorf("got %q after %s", got, time.Since(began))
		}
		time.Sleep(time.Second + time.Nanosecond)
		if got := f.shown(t, "a"); got != "web-0" || f.clusters.reviews["a"] != 1 {
			t.Errorf("got %q after %d reviews", got, f.clusters.reviews["a"])
		}
		// A decision is as old as its question.
		time.Sleep(freshFor - 5*time.Second)
		f.shown(t, "a")
		time.Sleep(reviewTimeout) // the last review ends within the test
		synctest.Wait()
		if f.clusters.reviews["a"] != 2 {
			t.Errorf("the cluster was asked %d times", f.clusters.reviews["a"])
		}
	})
}

// TestRightsOfReplacedCluster has another cluster take the name while the former one is asked.
func TestRightsOfReplacedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		f.clusters.slow["a"] = time.Second
		time.AfterFunc(time.Second/2, func() { f.hub.set(map[string]string{"a": "uid-2"}) })
		if got := f.shown(t, "a"); got != "unindexed: it has not decided what the caller may list: it has not decided" {
			t.Errorf("got %q", got)
		}
	})
}

// TestRightsAreBounded asks more than is remembered.
func TestRightsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		cluster := fleetindex.Cluster{Name: "a", UID: "uid-a"}
		as, err := newCaller(jane)
		if err != nil {
			t.Fatal(err)
		}
		questions := func(n int) (all []feed.Question) {
			for i := range n {
				all = append(all, feed.Question{Resource: pods, Verb: verbList, Namespace: fmt.Sprintf("n%d", i)})
			}
			return all
		}
		// Of what is new, no more is asked than the caller has left.
		p := f.rights.ask(t.Context(), as, cluster, questions(10), 3)
		for i, v := range p.wait(t.Context()) {
			if v.isAllowed != (i < 3) || v.isDecided != (i < 3) {
				t.Errorf("question %d: got %+v", i, v)
			}
		}
		if p.asked != 3 || len(f.clusters.questions) != 3 {
			t.Errorf("%d questions were asked: %v", p.asked, f.clusters.questions)
		}
		if p = f.rights.ask(t.Context(), as, cluster, questions(5), 9); p.asked != 2 {
			t.Errorf("%d questions are new, want 2", p.asked)
		}
		p.wait(t.Context())
	})
}
