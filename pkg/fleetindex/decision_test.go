package fleetindex

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDecisions writes what replicas were told on one question, in the order in which it comes to the store.
func TestDecisions(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1700000000+int64(seconds), 0) }
	eachEngine(t, func(t *testing.T, where location) {
		s := where.open(t, Options{})
		a, b := Cluster{"a", "uid-a"}, Cluster{"b", "uid-b"}
		last := func(question string, c Cluster) LastDecision {
			t.Helper()
			q := NewDigest([]byte(question))
			all, err := s.Decisions(t.Context(), []Digest{NewDigest([]byte("another")), q})
			if err != nil {
				t.Fatal(err)
			}
			return all[q].Of(c)
		}
		tell := func(question string, c Cluster, seconds int) {
			t.Helper()
			write := s.Keep
			if seconds < 0 {
				write, seconds = s.TakeBack, -seconds
			}
			d := Decision{NewDigest([]byte(question)), c, at(seconds)}
			if err := write(t.Context(), []Decision{d, d}); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			// told are seconds, less than 0 if it was not allowed then.
			told []int
			want int
		}{
			"allowed":                           {[]int{10}, 10},
			"allowed again":                     {[]int{10, 20}, 20},
			"an older one comes late":           {[]int{20, 10}, 20},
			"taken back":                        {[]int{10, -20}, -20},
			"taken back before it was written":  {[]int{-20, 10}, -20},
			"taken back twice, by other clocks": {[]int{10, -20, -17}, -20},
			"given again":                       {[]int{10, -20, 26}, 26},
			"given again, or a clock is ahead":  {[]int{10, -20, 24}, -20},
			"taken back by a clock that lags":   {[]int{10, -7}, -10},
			"an older no comes late":            {[]int{10, -4}, 10},
		} {
			for _, seconds := range c.told {
				tell(name, a, seconds)
			}
			tell(name, b, 1)
			want := LastDecision{at(max(c.want, -c.want)), c.want > 0}
			if got := last(name, a); got != want {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
			if got := last(name, b); got != (LastDecision{at(1), true}) {
				t.Errorf("%s: the other cluster's is %v", name, got)
			}
			if got := last(name, Cluster{"a", "uid-2"}); got != (LastDecision{}) {
				t.Errorf("%s: another cluster with the name has %v", name, got)
			}
		}

		// A cluster that goes, or another one that takes its name, leaves none.
		claim(t, s, "a")
		claim(t, s, "b")
		if err := s.Remove(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(t.Context(), Cluster{"b", "uid-2"}); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := s.reads.QueryRowContext(t.Context(), `SELECT count(*) FROM decision`).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d decisions are left, %v", n, err)
		}
	})
}

// TestDecisionsAreForgotten has old ones, and more than are to be kept.
func TestDecisionsAreForgotten(t *testing.T) {
	eachEngine(t, func(t *testing.T, where location) {
		s, c, now := where.open(t, Options{}), Cluster{"a", "uid-a"}, time.Now()
		var digests []Digest
		var allowed, denied []Decision
		for i := range 150 {
			q := NewDigest([]byte{byte(i)})
			digests = append(digests, q)
			if d := (Decision{q, c, now.Add(-time.Duration(i) * time.Second)}); i%2 == 0 {
				allowed = append(allowed, d)
			} else {
				denied = append(denied, d)
			}
		}
		if err := s.Keep(t.Context(), allowed); err != nil {
			t.Fatal(err)
		}
		if err := s.TakeBack(t.Context(), denied); err != nil {
			t.Fatal(err)
		}
		want := func(step string, allowed, denied int) {
			t.Helper()
			found, err := s.Decisions(t.Context(), digests)
			if err != nil {
				t.Fatal(err)
			}
			yes, no := 0, 0
			for i, q := range digests {
				switch last := found[q].Of(c); {
				case last.IsAllowed && i < 2*allowed:
					yes++
				case !last.At.IsZero() && !last.IsAllowed:
					no++
				}
			}
			if yes != allowed || no < denied-2 || no > denied {
				t.Errorf("%s: %d are allowed and %d denied, want the newest %d and %d", step, yes, no, allowed, denied)
			}
		}
		want("before", 75, 75)
		for _, step := range []struct {
			name    string
			before  time.Duration
			most    int
			allowed int
		}{{"none is too old", time.Hour, 100, 75}, {"half are", 75 * time.Second, 100, 38}, {"ten are kept", time.Hour, 10, 10}, {"none stands", -time.Second, 10, 0}} {
			if err := s.ForgetDecisions(t.Context(), now.Add(-step.before), step.most); err != nil {
				t.Fatal(err)
			}
			want(step.name, step.allowed, 30)
		}
	})
}

// TestTakenBackIsOnTheDisk looks at the store's files as they are when TakeBack has returned and the process is killed, and at
// whether commits waited for the disk.
func TestTakenBackIsOnTheDisk(t *testing.T) {
	folder := t.TempDir()
	s := location(filepath.Join(folder, "index.db")).open(t, Options{})
	q, c := NewDigest([]byte("q")), Cluster{"a", "uid-a"}
	if err := s.Keep(t.Context(), []Decision{{q, c, time.Unix(100, 0)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.TakeBack(t.Context(), []Decision{{q, c, time.Unix(200, 0)}}); err != nil {
		t.Fatal(err)
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	after := location(filepath.Join(killed, "index.db")).open(t, Options{})
	if found, err := after.Decisions(t.Context(), []Digest{q}); err != nil || found[q].Of(c) != (LastDecision{time.Unix(200, 0), false}) {
		t.Errorf("got %v, %v", found, err)
	}
	level := func(write func(f func(*transaction) error) error) (n int) {
		t.Helper()
		err := write(func(tx *transaction) error { return tx.queryRow(t.Context(), "PRAGMA synchronous").Scan(&n) })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const normal, full = 1, 2
	if n := level(func(f func(*transaction) error) error { return s.writeDurably(t.Context(), f) }); n != full {
		t.Errorf("synchronous is %d", n)
	}
	if n := level(func(f func(*transaction) error) error { return s.write(t.Context(), f) }); n != normal {
		t.Errorf("synchronous is %d later", n)
	}
}
