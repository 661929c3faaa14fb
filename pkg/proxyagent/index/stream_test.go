package index

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contextDone wakes those who wait for a change when a request ends.
func contextDone(r *http.Request, changed *sync.Cond) func() bool {
	return context.AfterFunc(r.Context(), func() {
		changed.L.Lock()
		defer changed.L.Unlock()
		changed.Broadcast()
	})
}

// open asks for the pods of a cluster, of which the index has something.
func open(t *testing.T, feeds *Feeds, known feed.Known) *reading {
	t.Helper()
	server := httptest.NewServer(feeds)
	t.Cleanup(server.Close)
	known.Resource = pods
	body, err := json.Marshal(feed.Request{Resources: []feed.Known{known}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &reading{feed.NewReader(resp.Body), cancel}
}

func (r *reading) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := summary(r.next(t)); got != w {
			t.Fatalf("got %q, want %q", got, w)
		}
	}
}

func TestStream(t *testing.T) {
	cluster, feeds := newCluster(t)
	cluster.set("a", "web-0", "Running")
	cluster.set("a", "web-1", "Pending")
	cluster.set("b", "web-0", "Done")
	index := open(t, feeds, feed.Known{})
	index.expect(t, "Pod with 5 columns")
	m := index.next(t)
	if got, want := summary(m), "a/web-0@101, a/web-1@102"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	got, err := json.Marshal(m.Put[0])
	const want = `{"ns":"a","name":"web-0","uid":"uid-web-0","rv":"101","created":1793491200,"labels":{"app":"web"},"owner":"ReplicaSet/web","images":["nginx:1.25"],"node":"node-1","cells":["web-0","Running","3 (5m ago)",null,"node-1"]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	index.expect(t, "b/web-0@103", "synced at 103")
	cluster.set("a", "web-1", "Running")
	cluster.remove("a", "web-0")
	index.expect(t, "a/web-1@104", "-a/web-0")
	// A watch that ends goes on where it was.
	cluster.endWatches()
	cluster.set("c", "new", "Running")
	index.expect(t, "c/new@106")
	// One that cannot is the index's turn.
	cluster.setRefusal("watch=true", http.StatusGone)
	cluster.set("c", "new", "Done")
	index.expect(t, "c/new@107")
	cluster.endWatches()
	index.expect(t, "again []")
	if _, err := index.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after Again: got %v", err)
	}
}

// knownOf returns what an index has of some pods: UID and version of each, by namespace.
func knownOf(definition *feed.Definition, pods map[string]map[string]string, withItems func(namespace string) bool) feed.Known {
	k := feed.Known{Definition: definition, Digests: map[string]feed.Digest{}, Items: map[string][]byte{}}
	for namespace, versions := range pods {
		for uid, version := range versions {
			item := feed.ItemOf(uid, version)
			k.Digests[namespace] = k.Digests[namespace].Add(item)
			if withItems(namespace) {
				k.Items[namespace] = item.Append(k.Items[namespace])
			}
		}
	}
	return k
}

func TestOnlyWhatDiffersTravels(t *testing.T) {
	all := func(string) bool { return true }
	none := func(string) bool { return false }
	definition := feed.Definition{Resource: pods, Version: "v1", Kind: "Pod", Namespaced: true, Columns: []feed.Column{
		{Name: "Name", Type: "string"}, {Name: "Status", Type: "string"}, {Name: "Restarts", Type: "string"}, {Name: "Age", Type: "string", Age: true}, {Name: "Node", Type: "string", Priority: 1},
	}}
	former := definition
	former.Columns = former.Columns[1:]
	same := map[string]map[string]string{"a": {"uid-web-0": "101", "uid-web-1": "102"}, "b": {"uid-web-2": "103"}}
	other := map[string]map[string]string{"a": {"uid-web-0": "101", "uid-web-1": "99", "uid-gone": "1"}, "b": {"uid-web-2": "103"}, "c": {"uid-gone-2": "1"}}
	for name, c := range map[string]struct {
		known feed.Known
		want  []string
	}{
		"items, the same":          {knownOf(&definition, same, all), []string{"synced at 103"}},
		"digests, the same":        {knownOf(&definition, same, none), []string{"synced at 103"}},
		"items, some differ":       {knownOf(&definition, other, all), []string{"a/web-1@102", "2 gone", "synced at 103"}},
		"digests, some differ":     {knownOf(&definition, other, none), []string{"again [a c]"}},
		"items of what differs":    {knownOf(&definition, other, func(ns string) bool { return ns != "b" }), []string{"a/web-1@102", "2 gone", "synced at 103"}},
		"nothing":                  {feed.Known{}, []string{"a/web-0@101, a/web-1@102", "b/web-2@103", "synced at 103"}},
		"other columns":            {knownOf(&former, same, all), []string{"a/web-0@101, a/web-1@102", "b/web-2@103", "synced at 103"}},
		"items that make no sense": {feed.Known{Definition: &definition, Items: map[string][]byte{"a": {1}}}, []string{"a/web-0@101, a/web-1@102", "b/web-2@103", "synced at 103"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, feeds := newCluster(t)
			cluster.set("a", "web-0", "Done")
			cluster.set("a", "web-1", "Done")
			cluster.set("b", "web-2", "Done")
			open(t, feeds, c.known).expect(t, append([]string{"Pod with 5 columns"}, c.want...)...)
		})
	}
}

func TestRefusals(t *testing.T) {
	for text, c := range map[string]struct {
		code int
		want string
	}{
		"limit=":  {http.StatusForbidden, "incomplete: the kube-apiserver answered 403: no limit="},
		"/api/v1": {http.StatusNotFound, "absent, incomplete: the kube-apiserver answered 404: no /api/v1"},
	} {
		cluster, feeds := newCluster(t)
		cluster.set("a", "web-0", "Done")
		cluster.setRefusal(text, c.code)
		open(t, feeds, feed.Known{}).expect(t, c.want)
	}
}

func TestNewerStreamEndsOlder(t *testing.T) {
	cluster, feeds := newCluster(t)
	cluster.set("a", "web-0", "Done")
	first := open(t, feeds, feed.Known{})
	first.expect(t, "Pod with 5 columns", "a/web-0@101", "synced at 101")
	second := open(t, feeds, feed.Known{})
	second.expect(t, "Pod with 5 columns", "a/web-0@101", "synced at 101")
	if _, err := first.Read(); err == nil {
		t.Error("the first stream goes on")
	}
	cluster.set("a", "web-0", "Running")
	second.expect(t, "a/web-0@102")
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	_, feeds := newCluster(t)
	for name, c := range map[string]struct {
		method, body string
		want         int
	}{
		"GET":            {http.MethodGet, "", http.StatusMethodNotAllowed},
		"no JSON":        {http.MethodPost, "x", http.StatusBadRequest},
		"no resources":   {http.MethodPost, "{}", http.StatusBadRequest},
		"Secrets":        {http.MethodPost, `{"resources":[{"resource":"pods"},{"resource":"secrets"}]}`, http.StatusBadRequest},
		"a subresource":  {http.MethodPost, `{"resources":[{"resource":"nodes/proxy"}]}`, http.StatusBadRequest},
		"another path":   {http.MethodPost, `{"resources":[{"group":"../api","resource":"pods"}]}`, http.StatusBadRequest},
		"many resources": {http.MethodPost, `{"resources":[` + strings.Repeat(`{},`, maxResources) + `{}]}`, http.StatusBadRequest},
	} {
		w := httptest.NewRecorder()
		feeds.ServeHTTP(w, httptest.NewRequest(c.method, "/", strings.NewReader(c.body)))
		if w.Code != c.want {
			t.Errorf("%s: got %d, want %d", name, w.Code, c.want)
		}
	}
}
