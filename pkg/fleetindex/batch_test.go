package fleetindex

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// TestBatch has writes wait for a first one, so that they share a transaction.
func TestBatch(t *testing.T) {
	refused := errors.New("refused")
	put := func(name string) func(*transaction) error {
		return func(tx *transaction) error {
			_, err := tx.exec(t.Context(), `INSERT INTO meta (name, value, content) VALUES (?, 0, '')`, name)
			return err
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		second func(*transaction) error
		ctx    context.Context
		// want are the writes that are there then, and transactions how many they took.
		want         []string
		err          error
		transactions int
	}{
		"all":               {second: put("b"), ctx: t.Context(), want: []string{"a", "b", "c"}, transactions: 1},
		"one fails":         {second: func(tx *transaction) error { return errors.Join(put("b")(tx), refused) }, ctx: t.Context(), want: []string{"a", "c"}, err: refused, transactions: 4},
		"a caller has gone": {second: put("b"), ctx: canceled, want: []string{"a", "c"}, err: context.Canceled, transactions: 3},
		"the engine ends the transaction": {second: func(tx *transaction) error {
			_, err := tx.ExecContext(t.Context(), "ROLLBACK")
			return errors.Join(refused, err)
		}, ctx: t.Context(), want: []string{"a", "c"}, err: refused, transactions: 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := location(filepath.Join(t.TempDir(), "index.db")).open(t, Options{})
			begun, release := make(chan struct{}), make(chan struct{})
			first := make(chan error, 1)
			go func() {
				first <- s.write(t.Context(), func(*transaction) error {
					close(begun)
					<-release
					return nil
				})
			}()
			<-begun
			used := map[*sql.Tx]bool{}
			var errs []chan error
			for i, w := range []struct {
				ctx context.Context
				run func(*transaction) error
			}{{t.Context(), put("a")}, {c.ctx, c.second}, {t.Context(), put("c")}} {
				err := make(chan error, 1)
				errs = append(errs, err)
				go func() {
					err <- s.write(w.ctx, func(tx *transaction) error {
						used[tx.Tx] = true
						return w.run(tx)
					})
				}()
				wait.Poll{Every: time.Millisecond}.Success(t, "a write that waits", func() error {
					s.batches.mu.Lock()
					defer s.batches.mu.Unlock()
					if n := len(s.batches.waiting); n <= i {
						return fmt.Errorf("%d wait", n)
					}
					return nil
				})
			}
			close(release)
			if err := <-first; err != nil {
				t.Error(err)
			}
			for i, want := range []error{nil, c.err, nil} {
				if err := <-errs[i]; !errors.Is(err, want) {
					t.Errorf("write %d: got %v, want %v", i, err, want)
				}
			}
			var got []string
			var text string
			if err := s.each(t.Context(), `SELECT name FROM meta WHERE length(name) = 1 ORDER BY name`, nil, []any{&text}, func() error {
				got = append(got, text)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) || len(used) != c.transactions {
				t.Errorf("got %v in %d transactions, want %v in %d", got, len(used), c.want, c.transactions)
			}
		})
	}
}

// TestWritesThatAreRunAgain has one of two writers fail in a transaction that both share: what the other one counts, it counts once.
func TestWritesThatAreRunAgain(t *testing.T) {
	s := location(filepath.Join(t.TempDir(), "index.db")).open(t, Options{})
	w := claim(t, s, "c1", podDefinition)
	put(t, w, podDefinition, pod("a", "old", "1", "Running"))
	other := claim(t, s, "c2", podDefinition)
	begun, release := make(chan struct{}), make(chan struct{})
	others := make(chan error, 2)
	go func() {
		others <- s.write(t.Context(), func(*transaction) error {
			close(begun)
			<-release
			return nil
		})
	}()
	<-begun
	waiting := func(n int) {
		t.Helper()
		wait.Poll{Every: time.Millisecond}.Success(t, "writes that wait", func() error {
			s.batches.mu.Lock()
			defer s.batches.mu.Unlock()
			if len(s.batches.waiting) != n {
				return fmt.Errorf("%d wait", len(s.batches.waiting))
			}
			return nil
		})
	}
	done := make(chan Applied, 1)
	go func() {
		applied, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Put: []feed.Row{pod("a", "new", "2", "Running")}, Gone: []feed.Key{{Namespace: "a", Name: "old"}}})
		if err != nil {
			t.Error(err)
		}
		done <- applied
	}()
	waiting(1)
	defined := make(chan error, 1)
	changed := podDefinition
	changed.Columns = changed.Columns[:1]
	go func() { defined <- other.Define(t.Context(), changed) }()
	waiting(2)
	refused := errors.New("refused")
	go func() { others <- s.write(t.Context(), func(*transaction) error { return refused }) }()
	waiting(3)
	close(release)
	if err := errors.Join(<-others, <-others); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := <-defined; err != nil || len(other.Feeds()[podDefinition.Resource].Definition.Columns) != 1 {
		t.Error(err, other.Feeds())
	}
	if got := <-done; got.Put != 1 || got.Gone != 1 {
		t.Errorf("got %+v, want one put and one gone", got)
	}
	if got := w.Feeds()[podDefinition.Resource]; got.Total != 1 {
		t.Errorf("got %d rows, want 1", got.Total)
	}
	if got, _ := list(t, s, ListOptions{Resource: podDefinition.Resource, Rights: everything}); !slices.Equal(got, []string{"c1/a/new"}) {
		t.Errorf("got %v", got)
	}
}
