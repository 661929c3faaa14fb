package fleetindexer

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// goAway has a cluster go, and waits until nothing that it decided is fresh.
func (f *fixture) goAway(cluster string) {
	f.clusters.fails[cluster] = errAway
	time.Sleep(freshFor)
}

// TestDecisionsSurvive has the process end while a cluster is away.
func TestDecisionsSurvive(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(string, feed.Question) feed.Decision
		// found is what a search finds then, and shown a list.
		found, shown string
		as           indexapi.Caller
		staleFor     time.Duration
		sleep        time.Duration
	}{
		"all":                    {nil, "a/bank/db-0 a/shop/web-0", "db-0 web-0 as of 00:00:00, remembered", jane, 24 * time.Hour, 0},
		"for hours":              {nil, "a/bank/db-0 a/shop/web-0", "db-0 web-0 as of 00:00:00, remembered", jane, 24 * time.Hour, 23 * time.Hour},
		"one namespace":          {only("shop"), "a/shop/web-0", "unindexed: it is away, and had not decided", jane, 24 * time.Hour, 0},
		"nothing":                {deny, "", "unindexed: it is away, and had not decided", jane, 24 * time.Hour, 0},
		"another user":           {nil, "", "unindexed: it is away, and had not decided", indexapi.Caller{Name: "joe", Groups: jane.Groups}, 24 * time.Hour, 0},
		"without the group":      {nil, "", "unindexed: it is away, and had not decided", indexapi.Caller{Name: "jane"}, 24 * time.Hour, 0},
		"no longer":              {nil, "", "unindexed: it is away, and had not decided", jane, 24 * time.Hour, 25 * time.Hour},
		"decisions do not stand": {nil, "", "unindexed: it is away, and had not decided", jane, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.put(t, "a", printed("shop", "web-0"), printed("bank", "db-0"))
				if c.decide != nil {
					f.clusters.decide["a"] = c.decide
				}
				f.search(t, "nginx", "a")
				f.shown(t, "a")
				f.rights.kept.write(t.Context())
				f.goAway("a")
				time.Sleep(c.sleep)
				next := f.another()
				next.rights.staleFor = c.staleFor
				next.rights.forget(t.Context())
				if got := next.shownTo(t, c.as, "a"); !strings.HasPrefix(got, c.shown) {
					t.Errorf("a list: got %q, want %q", got, c.shown)
				}
				answer := next.searchAs(t, c.as, "nginx", "a")
				if got := hits(answer); got != c.found {
					t.Errorf("a search: got %q, want %q", got, c.found)
				}
				if got := next.countAs(t, c.as, "nginx", "a").Total; got != int64(len(answer.Hits)) {
					t.Errorf("counted %d", got)
				}
			})
		})
	}
}

// TestTakenBackStaysSo takes a right away, and has the process be killed right after somebody was told.
func TestTakenBackStaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		isWritten bool
		decide    func(string, feed.Question) feed.Decision
		told      string
	}{
		"it was written":        {true, deny, "forbidden"},
		"it was not yet":        {false, deny, "forbidden"},
		"the owner refuses":     {true, refuseToDecide, "unindexed: it has not decided"},
		"the owner refused now": {false, refuseToDecide, "unindexed: it has not decided"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.put(t, "a", printed("shop", "web-0"))
				f.shown(t, "a")
				if c.isWritten {
					f.rights.kept.write(t.Context())
				}
				f.clusters.decide["a"] = c.decide
				time.Sleep(freshFor)
				if got := f.shown(t, "a"); !strings.HasPrefix(got, c.told) {
					t.Fatalf("got %q", got)
				}
				killed, next := f, f.another()
				f.goAway("a")
				for _, pause := range []time.Duration{0, 2 * time.Minute, time.Hour} {
					killed.rights.kept.write(t.Context()) // as if it were a replica that goes on
					time.Sleep(pause)
					next.rights.forget(t.Context())
					for _, process := range []*fixture{next, next.another(), killed} {
						if got := process.shown(t, "a"); strings.Contains(got, "web-0") {
							t.Errorf("after %s: got %q", pause, got)
						}
					}
				}
			})
		})
	}
}

func refuseToDecide(string, feed.Question) feed.Decision {
	return feed.Decision{Undecided: "403: no", Refused: true}
}

// TestReplicasShareDecisions asks two processes in turn.
func TestReplicasShareDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newFixture(t)
		one.rights.kept.isReplica = true
		other := one.another()
		other.rights.kept.isReplica = true
		one.put(t, "a", printed("shop", "web-0"))
		one.put(t, "b", printed("shop", "web-0"))
		one.shown(t, "a")
		one.shown(t, "b")
		one.clusters.decide["a"] = deny
		time.Sleep(time.Second)
		// The other one is told no before what the first was told is written.
		if got := other.shown(t, "a"); got != "forbidden" {
			t.Errorf("got %q", got)
		}
		one.rights.kept.write(t.Context())
		one.clusters.fails["b"] = errAway
		one.goAway("a")
		for _, pause := range []time.Duration{0, 2 * time.Minute} {
			time.Sleep(pause)
			other.rights.forget(t.Context())
			for name, process := range map[string]*fixture{"the one that was told yes": one, "the one that was told no": other, "a new one": other.another()} {
				if got := process.shown(t, "a"); strings.Contains(got, "web-0") {
					t.Errorf("%s, after %s: got %q", name, pause, got)
				}
				// It was not asked about the other cluster.
				if got := process.shown(t, "b"); got != "web-0 as of 00:00:00, remembered" {
					t.Errorf("%s, after %s: got %q", name, pause, got)
				}
			}
		}
	})
}

// TestTakingBackFails has a store that takes nothing.
func TestTakingBackFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		location := filepath.Join(t.TempDir(), "index.db")
		f := newFixtureAt(t, location)
		db, err := sql.Open("sqlite", location)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		exec := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		f.put(t, "a", printed("shop", "web-0"))
		f.shown(t, "a")
		f.rights.kept.write(t.Context())
		f.clusters.decide["a"] = deny
		exec(`CREATE TRIGGER full BEFORE INSERT ON decision BEGIN SELECT RAISE(ABORT, 'disk is full'); END`)
		for range 3 {
			time.Sleep(freshFor)
			// Nobody is told of a decision that the store does not have.
			if got := f.shown(t, "a"); got != "unindexed: it has not decided what the caller may list: "+notWritten {
				t.Errorf("got %q", got)
			}
		}
		exec(`DROP TRIGGER full`)
		time.Sleep(freshFor)
		if got := f.shown(t, "a"); got != "forbidden" {
			t.Errorf("got %q", got)
		}
		next := f.another()
		f.goAway("a")
		if got := next.shown(t, "a"); strings.Contains(got, "web-0") {
			t.Errorf("got %q", got)
		}
		// A store that cannot be read shows nothing either.
		delete(f.clusters.decide, "a")
		delete(f.clusters.fails, "a")
		time.Sleep(freshFor)
		f.shown(t, "a")
		f.rights.kept.write(t.Context())
		f.goAway("a")
		exec(`ALTER TABLE decision RENAME TO gone`)
		if got := f.another().shown(t, "a"); !strings.HasPrefix(got, "unindexed: it is away, and had not decided") {
			t.Errorf("got %q", got)
		}
	})
}
