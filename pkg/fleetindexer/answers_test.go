package fleetindexer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

var errAway = &agentclient.AwayError{Err: errors.New("no agent is connected")}

// fakeClusters decide about users. Their methods are those of reviewers.
type fakeClusters struct {
	mu sync.Mutex
	// decide has what clusters answer; without it they allow all.
	decide map[string]func(user string, q feed.Question) feed.Decision
	// fails has the errors of clusters that cannot be asked, and slow how long clusters take.
	fails map[string]error
	slow  map[string]time.Duration
	// reviews and questions count what was asked.
	reviews   map[string]int
	questions []string
}

func (c *fakeClusters) review(ctx context.Context, cluster string, as user.Info, review *feed.Review) ([]feed.Decision, error) {
	c.mu.Lock()
	c.reviews[cluster]++
	for _, q := range review.Questions {
		c.questions = append(c.questions, fmt.Sprintf("%s %s %s/%s", cluster, as.GetName(), q.Namespace, q.Resource))
	}
	decide, err, slow := c.decide[cluster], c.fails[cluster], c.slow[cluster]
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(slow):
	}
	decisions := make([]feed.Decision, len(review.Questions))
	for i, q := range review.Questions {
		if decisions[i].Allowed = true; decide != nil {
			decisions[i] = decide(as.GetName(), q)
		}
	}
	return decisions, err
}

func deny(string, feed.Question) feed.Decision { return feed.Decision{} }

// Served is that of a hub whose clusters are all served.
func (h *fakeHub) Served(cluster string) error {
	if h.UID(cluster) == "" {
		return errors.New("not served")
	}
	return nil
}

// fixture is an index with clusters.
type fixture struct {
	*answers
	clusters *fakeClusters
	hub      *fakeHub
	writers  map[string]*fleetindex.Writer
}

// newFixture returns an index whose clusters have rows that are current.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureAt(t, "")
}

// newFixtureAt is newFixture with the store at a location.
func newFixtureAt(t testing.TB, location string) *fixture {
	t.Helper()
	s, _ := newTestShared(t, fleetindex.Options{Location: location})
	f := &fixture{hub: &fakeHub{clusters: map[string]string{}}, writers: map[string]*fleetindex.Writer{},
		clusters: &fakeClusters{decide: map[string]func(string, feed.Question) feed.Decision{}, fails: map[string]error{}, slow: map[string]time.Duration{}, reviews: map[string]int{}}}
	f.answers = newAnswers(s, f.hub, newRights(f.clusters, f.hub.UID, 24*time.Hour, s))
	return f
}

// another is another process with the same store: a replica, or the next one if this one was killed.
func (f *fixture) another() *fixture {
	s := newShared(nil, f.store, f.resources, f.metrics)
	return &fixture{answers: newAnswers(s, f.hub, newRights(f.clusters, f.hub.UID, f.rights.staleFor, s)), clusters: f.clusters, hub: f.hub, writers: f.writers}
}

// put gives a cluster pods that are all there.
func (f *fixture) put(t testing.TB, cluster string, rows ...feed.Row) {
	t.Helper()
	c := fleetindex.Cluster{Name: cluster, UID: "uid-" + cluster}
	w := f.writers[cluster]
	if w == nil {
		var err error
		if w, err = f.store.Claim(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := w.Define(t.Context(), printedPod); err != nil {
			t.Fatal(err)
		}
		f.writers[cluster] = w
		f.hub.mu.Lock()
		f.hub.clusters[cluster] = c.UID
		f.hub.mu.Unlock()
	}
	if applied, err := w.Apply(t.Context(), fleetindex.Changes{Resource: pods, Put: rows, Version: "100", Synced: true}); err != nil || applied.Refused > 0 {
		t.Fatal(applied, err)
	}
	f.hear(t, cluster)
}

// hear says that a cluster's rows are current.
func (f *fixture) hear(t testing.TB, cluster string) {
	t.Helper()
	now := time.Now()
	p := &progress{}
	p.heard.Store(now.UnixNano())
	f.followed.Store(fleetindex.Cluster{Name: cluster, UID: "uid-" + cluster}, p)
	if err := f.store.Heard(t.Context(), map[*fleetindex.Writer]time.Time{f.writers[cluster]: now}); err != nil {
		t.Fatal(err)
	}
}

// printedPod is what a kube-apiserver says of pods, with fewer columns.
var printedPod = feed.Definition{Resource: pods, Version: "v1", Kind: "Pod", Namespaced: true, Columns: []feed.Column{
	{Name: "Name", Type: "string", Format: "name", Description: "Name must be unique within a namespace."},
	{Name: "Ready", Type: "string"}, {Name: "Status", Type: "string"}, {Name: "Restarts", Type: "string"}, {Name: "Age", Type: "string", Age: true},
	{Name: "IP", Type: "string", Priority: 1},
}}

func printed(namespace, name string) feed.Row {
	cells, _ := json.Marshal([]any{name, "1/1", "Running", "0", nil, nil})
	return feed.Row{Key: feed.Key{Namespace: namespace, Name: name}, UID: "uid-" + name, Version: "7", Created: 946684800 - 3*3600, Cells: cells, Images: []string{"library/nginx:1.25"}}
}

func asked(names ...string) (clusters []indexapi.Cluster) {
	for _, name := range names {
		clusters = append(clusters, indexapi.Cluster{Name: name, UID: "uid-" + name})
	}
	return clusters
}

var jane = indexapi.Caller{Name: "jane", Groups: []string{"team"}}

// post sends a request.
func (f *fixture) post(t testing.TB, path string, request any) *httptest.ResponseRecorder {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	f.routes().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body)))
	return w
}

type answeredTable struct {
	indexapi.Head
	table string
}

// tables asks for pods of clusters as jane.
func (f *fixture) tables(t testing.TB, q indexapi.TablesRequest) (all []answeredTable) {
	t.Helper()
	q.Version = "v1"
	if q.Caller.Name == "" {
		q.Caller = jane
	}
	if q.Resource.Resource == "" {
		q.Resource = pods
	}
	w := f.post(t, indexapi.TablesPath, q)
	if w.Code != http.StatusOK {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	for r := indexapi.NewTablesReader(w.Body); ; {
		head, table, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		head.Size = 0
		all = append(all, answeredTable{*head, string(table)})
	}
	if len(all) != len(q.Clusters) {
		t.Fatalf("%d clusters of %d are answered", len(all), len(q.Clusters))
	}
	for i, one := range all {
		if one.Cluster != q.Clusters[i].Name {
			t.Errorf("cluster %s is answered in the place of %s", one.Cluster, q.Clusters[i].Name)
		}
	}
	return all
}

// shown says in short what is shown of one cluster's pods: the names, or why there are none.
func (f *fixture) shown(t testing.TB, cluster string) string {
	t.Helper()
	return f.shownTo(t, jane, cluster)
}

func (f *fixture) shownTo(t testing.TB, as indexapi.Caller, cluster string) string {
	t.Helper()
	one := f.tables(t, indexapi.TablesRequest{Caller: as, Clusters: asked(cluster), Metadata: true})[0]
	switch {
	case one.Forbidden != "":
		return "forbidden"
	case one.Absent:
		return "absent"
	case one.Unindexed != "":
		return "unindexed: " + one.Unindexed
	}
	text := strings.Join(namesOf(t, one.table), " ")
	if !one.AsOf.IsZero() {
		text += " as of " + one.AsOf.Format(time.TimeOnly)
	}
	if one.Remembered {
		text += ", remembered"
	}
	if one.Incomplete != "" {
		text += ", incomplete: " + one.Incomplete
	}
	return text
}

func namesOf(t testing.TB, table string) (names []string) {
	t.Helper()
	var parsed struct{ Rows []struct{ Cells []any } }
	if err := json.Unmarshal([]byte(table), &parsed); err != nil {
		t.Fatal(err, table)
	}
	for _, row := range parsed.Rows {
		names = append(names, row.Cells[0].(string))
	}
	return names
}
