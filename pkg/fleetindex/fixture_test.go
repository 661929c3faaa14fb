package fleetindex

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

// postgresURL names the variable with the URL of a PostgreSQL database in which tests may make
// schemas, such as postgres:///postgres?host=/run/postgresql.
const postgresURL = "FLEETINDEX_POSTGRES"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// location is where a test has its store.
type location string

// open opens the store, and closes it at the end of the test.
func (l location) open(t testing.TB, o Options) *Store {
	t.Helper()
	o.Location = string(l)
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// eachEngine runs a test with an empty store of each engine.
func eachEngine(t *testing.T, test func(*testing.T, location)) {
	t.Run("sqlite", func(t *testing.T) { test(t, location(filepath.Join(t.TempDir(), "index ?#%41.db"))) })
	t.Run("postgresql", func(t *testing.T) { test(t, newPostgres(t)) })
}

// newPostgres makes a schema for the test.
func newPostgres(t testing.TB) location {
	t.Helper()
	at := os.Getenv(postgresURL)
	if at == "" {
		t.Skipf("!!! NOT RUN over PostgreSQL: set %s to the URL of a database in which the tests may make schemas", postgresURL)
	}
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	schema := strings.ToLower(fmt.Sprintf("t%d_%x", os.Getpid(), slices.Max([]byte(t.Name()))) + strings.Map(letters, t.Name()))
	if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return location(u.String())
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return -1
}

var podDefinition = feed.Definition{
	Resource: feed.Resource{Resource: "pods"}, Version: "v1", Kind: "Pod", Namespaced: true,
	Columns: []feed.Column{{Name: "Name", Type: "string"}, {Name: "Ready", Type: "string"}, {Name: "Status", Type: "string"}, {Name: "Age", Type: "string", Age: true}},
}

var nodeDefinition = feed.Definition{
	Resource: feed.Resource{Resource: "nodes"}, Version: "v1", Kind: "Node",
	Columns: []feed.Column{{Name: "Name", Type: "string"}, {Name: "Status", Type: "string"}},
}

// pod returns a row. rest are status, image, labels.
func pod(namespace, name, version string, rest ...string) feed.Row {
	rest = append(rest, []string{"Running", "registry.example/nginx:1.25", "app=web"}[min(3, len(rest)):]...)
	cells, _ := json.Marshal([]any{name, "1/1", rest[0], nil})
	r := feed.Row{
		Key: feed.Key{Namespace: namespace, Name: name}, UID: "uid-" + namespace + "-" + name, Version: version,
		Created: 1700000000, Images: []string{rest[1]}, Node: "node-1", Owner: "ReplicaSet/web-5d", Cells: cells, Labels: map[string]string{},
	}
	for _, label := range strings.Fields(rest[2]) {
		key, value, _ := strings.Cut(label, "=")
		r.Labels[key] = value
	}
	return r
}

func node(name string) feed.Row {
	cells, _ := json.Marshal([]any{name, "Ready"})
	return feed.Row{Key: feed.Key{Name: name}, UID: "uid-" + name, Version: "1", Cells: cells}
}

// claim claims a cluster and defines the resources.
func claim(t testing.TB, s *Store, cluster string, definitions ...feed.Definition) *Writer {
	t.Helper()
	w, err := s.Claim(t.Context(), Cluster{Name: cluster, UID: "uid-" + cluster})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if err := w.Define(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// put writes rows, of which none may be refused.
func put(t testing.TB, w *Writer, d feed.Definition, rows ...feed.Row) {
	t.Helper()
	applied, err := w.Apply(t.Context(), Changes{Resource: d.Resource, Put: rows, Version: "100", Synced: true})
	if err != nil || applied.Refused > 0 {
		t.Fatal(applied, err)
	}
}

func everything(string, feed.Resource) Scope { return Scope{All: true} }

// list returns the rows of a list as cluster/namespace/name, and what it says of the clusters that the caller may list. It is
// of all clusters by name if the options have none.
func list(t testing.TB, s *Store, o ListOptions) (found []string, listed []Listed) {
	t.Helper()
	if o.Clusters == nil {
		o.Clusters = all(t, s)
	}
	ended := 0
	err := s.List(t.Context(), o, func(l *Listed, f *Found) error {
		if l.Cluster != o.Clusters[ended].Name || f != nil && f.Cluster != l.Cluster {
			t.Errorf("cluster %s was visited in the place of %s", l.Cluster, o.Clusters[ended].Name)
		}
		if f != nil {
			found = append(found, f.Cluster+"/"+f.Namespace+"/"+f.Name)
			return nil
		}
		if ended++; l.Definition != nil {
			listed = append(listed, *l)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ended != len(o.Clusters) {
		t.Errorf("the list is of %d clusters of %d", ended, len(o.Clusters))
	}
	return found, listed
}

// all returns the clusters of a store by name.
func all(t testing.TB, s *Store) (wanted []Wanted) {
	t.Helper()
	clusters, err := s.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(clusters, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range clusters {
		wanted = append(wanted, Wanted{Cluster: c})
	}
	return wanted
}

// pages returns the rows of all pages of a list, by cluster.
func pages(t testing.TB, s *Store, o ListOptions) (found []string) {
	t.Helper()
	wanted := all(t, s)
	if o.Clusters == nil {
		o.Clusters = wanted
	}
	of := map[string][]string{}
	for page := 0; len(o.Clusters) > 0; page++ {
		rows, listed := list(t, s, o)
		n := map[string]int{}
		for _, row := range rows {
			cluster, _, _ := strings.Cut(row, "/")
			of[cluster] = append(of[cluster], row)
			n[cluster]++
		}
		o.Clusters = nil
		for _, l := range listed {
			if o.Limit > 0 && n[l.Cluster] > o.Limit || page > 0 && n[l.Cluster] == 0 {
				t.Errorf("page %d by %d of cluster %s has %d rows", page, o.Limit, l.Cluster, n[l.Cluster])
			}
			if l.Continue != "" {
				o.Clusters = append(o.Clusters, Wanted{Cluster{l.Cluster, "uid-" + l.Cluster}, l.Continue})
			}
		}
	}
	for _, c := range wanted {
		found = append(found, of[c.Name]...)
	}
	return found
}

func parse(t testing.TB, text string) query.Query {
	t.Helper()
	q, err := query.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// find returns the rows of a search as cluster/namespace/name.
func find(t testing.TB, s *Store, text string, rights Rights) []string {
	t.Helper()
	found, token, err := s.Search(t.Context(), SearchOptions{Query: parse(t, text), Rights: rights})
	if err != nil || token != "" {
		t.Fatal(err, token)
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Cluster+"/"+f.Namespace+"/"+f.Name)
	}
	return names
}
