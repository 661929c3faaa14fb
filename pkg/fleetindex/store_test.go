package fleetindex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

var now2023 = time.Unix(1700000000, 0)

// TestSchemas opens stores of other releases.
func TestSchemas(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		put(t, claim(t, s, "a", podDefinition), podDefinition, pod("shop", "web-0", "1"))
		_, token, err := s.Search(t.Context(), SearchOptions{Query: parse(t, ""), Rights: everything, Limit: 1})
		if err != nil || token != "" {
			t.Fatal(token, err)
		}
		// A later release adds to the schema: the rows of this one stay.
		later := *s.dialect
		later.schema = append(later.schema[:len(later.schema):len(later.schema)], []string{`CREATE TABLE later (id BIGINT PRIMARY KEY)`, `INSERT INTO later SELECT id FROM object`})
		own := s.dialect
		for range 2 {
			s.dialect = &later
			if _, err := s.migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.dialect = own
		var n int
		if err := s.reads.QueryRowContext(t.Context(), `SELECT count(*) FROM later`).Scan(&n); err != nil || n != 1 {
			t.Errorf("the later schema has %d rows, %v", n, err)
		}
		_, err = Open(t.Context(), Options{Location: string(at)})
		if err == nil || !strings.Contains(err.Error(), "schema 4, and this release knows 3") {
			t.Errorf("a later schema: got %v", err)
		}
	})
}

// TestOldSchema opens a store of the first release.
func TestOldSchema(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		db, err := newDatabase(string(at), 1)
		if err != nil {
			t.Fatal(err)
		}
		first := *db.dialect
		first.schema, db.dialect = first.schema[:1], &first
		_, err = db.migrate(t.Context())
		if err == nil {
			_, err = db.writes.ExecContext(t.Context(), `INSERT INTO cluster (id, name, uid, epoch, heard, changed) VALUES (1, 'a', 'uid-a', 0, 0, 0)`)
		}
		for id, namespace := range map[int]string{1: "shop", 2: ""} {
			row := []any{id, 1, namespace, fmt.Sprint("web-", id), "uid", "1", 0, 0, "", "", "", "", "", "[]"}
			if first.wordsInRow {
				row = append(row, "")
			}
			_, failed := db.writes.ExecContext(t.Context(), first.sql(first.put(1)), row...)
			err = errors.Join(err, failed)
		}
		if err := errors.Join(err, db.writes.Close(), db.reads.Close()); err != nil {
			t.Fatal(err)
		}
		s, q := at.open(t, Options{}), NewDigest([]byte("q"))
		kept := Decision{q, Cluster{"a", "uid-a"}, now2023}
		if err := s.Keep(t.Context(), []Decision{kept}); err != nil {
			t.Fatal(err)
		}
		if found, err := s.Decisions(t.Context(), []Digest{q}); err != nil || !found[q].Of(kept.Cluster).IsAllowed {
			t.Errorf("got %v, %v", found, err)
		}
		if got := all(t, s); len(got) != 1 || got[0].Cluster != kept.Cluster {
			t.Errorf("got clusters %v", got)
		}
		var name, in string
		stored := map[string]string{}
		err = s.each(t.Context(), `SELECT name, namespace FROM object`, nil, []any{&name, &in}, func() error {
			stored[name] = in
			return nil
		})
		if want := map[string]string{"web-1": "shop/", "web-2": ""}; err != nil || !maps.Equal(stored, want) {
			t.Errorf("the namespaces of rows are %v, %v, want %v", stored, err, want)
		}
	})
}

func TestOpenFails(t *testing.T) {
	for name, at := range map[string]string{
		"no folder":     t.TempDir() + "/no/index.db",
		"no URL":        "postgres://user:secret@[::1",
		"no PostgreSQL": "postgres://user:secret@127.0.0.1:1/x?connect_timeout=1",
	} {
		_, err := Open(t.Context(), Options{Location: at})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	file := t.TempDir() + "/index.db"
	if err := os.WriteFile(file, []byte(strings.Repeat("this is no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Location: file}); err == nil {
		t.Error("a file that is no database was opened")
	}
}

// TestFull fills the store: what is in it can still be read, and is written again when there is space.
func TestFull(t *testing.T) {
	s := location(t.TempDir()+"/index.db").open(t, Options{})
	w := claim(t, s, "a", podDefinition)
	put(t, w, podDefinition, pod("shop", "web-0", "1"))
	limit := func(pages string) {
		if _, err := s.writes.ExecContext(t.Context(), "PRAGMA max_page_count = "+pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // the file cannot become smaller, nor larger
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		row := pod("shop", "web-"+strings.Repeat("x", i+1), "1")
		_, err = w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Put: []feed.Row{row}})
	}
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("got %v", err)
	}
	total := w.Feeds()[podDefinition.Resource].Total
	if rows, _ := list(t, s, ListOptions{Resource: podDefinition.Resource, Rights: everything}); int64(len(rows)) != total || total == 0 {
		t.Errorf("got %d rows, and the feed says %d", len(rows), total)
	}
	limit("1000000")
	put(t, w, podDefinition, pod("shop", "later", "1"))
}

// TestPostgresGoes cuts the connections in the middle of a transaction.
func TestPostgresGoes(t *testing.T) {
	s := newPostgres(t).open(t, Options{})
	w := claim(t, s, "a", podDefinition)
	put(t, w, podDefinition, pod("shop", "web-0", "1"))
	err := s.write(t.Context(), func(tx *transaction) error {
		if err := w.fence(t.Context(), tx); err != nil {
			return err
		}
		if _, err := s.reads.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND state = 'idle in transaction'`); err != nil {
			return err
		}
		_, err := tx.exec(context.Background(), `DELETE FROM object`)
		return err
	})
	if err == nil {
		t.Error("the transaction was committed")
	}
	put(t, w, podDefinition, pod("shop", "web-1", "1"))
	if rows, _ := list(t, s, ListOptions{Resource: podDefinition.Resource, Rights: everything}); len(rows) != 2 {
		t.Errorf("got %v", rows)
	}
}

// TestPostgresRestarts kills the server of hack/with-postgres.sh in the middle of a transaction, and starts it again.
func TestPostgresRestarts(t *testing.T) {
	at := newPostgres(t)
	u, err := url.Parse(string(at))
	if err != nil {
		t.Fatal(err)
	}
	dir := u.Query().Get("host")
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl")
	if _, missing := os.Stat(dir + "/data"); err != nil || missing != nil || len(programs) == 0 {
		t.Skipf("!!! NOT RUN: the server is not that of hack/with-postgres.sh, which this test may restart: %v", missing)
	}
	restart := []string{programs[len(programs)-1], "-D", dir + "/data", "-l", dir + "/log", "-m", "immediate", "-w", "restart"}
	if os.Getuid() == 0 {
		restart = append([]string{"runuser", "-u", "postgres", "--"}, restart...)
	}
	s := at.open(t, Options{})
	w := claim(t, s, "a", podDefinition)
	put(t, w, podDefinition, pod("shop", "web-0", "1"))
	err = s.write(t.Context(), func(tx *transaction) error {
		if err := w.fence(t.Context(), tx); err != nil {
			return err
		}
		if _, err := tx.exec(t.Context(), `DELETE FROM object`); err != nil {
			return err
		}
		command := exec.CommandContext(t.Context(), restart[0], restart[1:]...)
		command.Dir = "/"
		if err := command.Run(); err != nil {
			t.Fatal(restart, err)
		}
		return nil
	})
	if err == nil {
		t.Error("the transaction was committed")
	}
	// Connections of before fail once each, and the cluster is claimed again.
	for range s.reads.Stats().MaxOpenConnections + 1 {
		if w, err = s.Claim(t.Context(), Cluster{"a", "uid-a"}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, w, podDefinition, pod("shop", "web-1", "1"))
	if rows, _ := list(t, s, ListOptions{Resource: podDefinition.Resource, Rights: everything}); !slices.Equal(rows, []string{"a/shop/web-0", "a/shop/web-1"}) {
		t.Errorf("got %v", rows)
	}
}
