package index

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// fakeCluster is a kube-apiserver with pods, which it shows as Tables.
type fakeCluster struct {
	mu      sync.Mutex
	changed *sync.Cond
	version int
	objects map[string]map[string]any
	events  []fakeEvent
	// refuse answers requests whose path and query contain a text with a code.
	refuse map[string]int
	// cut ends the watches of the moment.
	cut int
	// asked are the requests, by path and query.
	asked []string
}

type fakeEvent struct {
	version int
	kind    string
	object  map[string]any
}

func newCluster(t *testing.T) (*fakeCluster, *Feeds) {
	t.Helper()
	c := &fakeCluster{version: 100, objects: map[string]map[string]any{}, refuse: map[string]int{}}
	c.changed = sync.NewCond(&c.mu)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	feeds, err := NewFeeds(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(feeds.client.http.CloseIdleConnections)
	return c, feeds
}

// set makes or changes a pod.
func (c *fakeCluster) set(namespace, name, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	kind := "MODIFIED"
	if c.objects[namespace+"/"+name] == nil {
		kind = "ADDED"
	}
	object := map[string]any{
		"cells": []any{name, state, "3 (5m ago)", "7d", "node-1"},
		"object": map[string]any{
			"metadata": map[string]any{
				"namespace": namespace, "name": name, "uid": "uid-" + name, "resourceVersion": strconv.Itoa(c.version), "creationTimestamp": "2026-11-01T00:00:00Z",
				"labels": map[string]string{"app": "web"}, "ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "name": "web", "controller": true}},
			},
			"spec": map[string]any{"containers": []any{map[string]any{"image": "nginx:1.25", "command": []string{"x"}}}},
		},
	}
	if state == "Done" {
		object["cells"] = []any{name, state, "0", "7d", "<none>"}
	}
	c.objects[namespace+"/"+name] = object
	c.events = append(c.events, fakeEvent{c.version, kind, object})
	c.changed.Broadcast()
}

func (c *fakeCluster) remove(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.events = append(c.events, fakeEvent{c.version, "DELETED", c.objects[namespace+"/"+name]})
	delete(c.objects, namespace+"/"+name)
	c.changed.Broadcast()
}

func (c *fakeCluster) endWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut++
	c.changed.Broadcast()
}

func (c *fakeCluster) setRefusal(text string, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse[text] = code
}

var columnDefinitions = []map[string]any{
	{"name": "Name", "type": "string"}, {"name": "Status", "type": "string"}, {"name": "Restarts", "type": "string"}, {"name": "Age", "type": "string"}, {"name": "Node", "type": "string", "priority": 1},
}

func tableOf(version int, token string, rows ...any) map[string]any {
	return map[string]any{"kind": "Table", "metadata": map[string]any{"resourceVersion": strconv.Itoa(version), "continue": token}, "columnDefinitions": columnDefinitions, "rows": rows}
}

func (c *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, r.URL.String())
	for text, code := range c.refuse {
		if strings.Contains(r.URL.String(), text) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]any{"message": "no " + text})
			return
		}
	}
	query := r.URL.Query()
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case r.URL.Path == "/api/v1":
		_ = json.NewEncoder(w).Encode(map[string]any{"resources": []any{map[string]any{"name": "pods", "kind": "Pod", "namespaced": true}}})
	case len(parts) == 6:
		object, ok := c.objects[parts[3]+"/"+parts[5]]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(tableOf(c.version, "", object))
	case query.Get("watch") == "true":
		from, _ := strconv.Atoi(query.Get("resourceVersion"))
		c.watchLocked(w, r, from)
	default:
		c.listLocked(w, query.Get("continue"))
	}
}

// listLocked answers pages of two.
func (c *fakeCluster) listLocked(w http.ResponseWriter, token string) {
	var keys []string
	for key := range c.objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	at, _ := strconv.Atoi(token)
	var rows []any
	for _, key := range keys[at:min(at+2, len(keys))] {
		rows = append(rows, c.objects[key])
	}
	next := ""
	if at+2 < len(keys) {
		next = strconv.Itoa(at + 2)
	}
	_ = json.NewEncoder(w).Encode(tableOf(c.version, next, rows...))
}

func (c *fakeCluster) watchLocked(w http.ResponseWriter, r *http.Request, from int) {
	flush := http.NewResponseController(w).Flush
	_ = flush()
	stop := contextDone(r, c.changed)
	defer stop()
	for sent, cut := 0, c.cut; r.Context().Err() == nil && c.cut == cut; c.changed.Wait() {
		for ; sent < len(c.events); sent++ {
			if e := c.events[sent]; e.version > from {
				table := tableOf(e.version, "", e.object)
				delete(table, "columnDefinitions")
				_ = json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": table})
				_ = flush()
			}
		}
	}
}

// reading is an index that reads a stream.
type reading struct {
	*feed.Reader
	cancel func()
}

// next returns the next message that is no heartbeat.
func (r *reading) next(t *testing.T) *feed.Message {
	t.Helper()
	for {
		m, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if m.Resource.Resource != "" {
			return m
		}
	}
}

// summary returns what a message says, for comparison.
func summary(m *feed.Message) string {
	var parts []string
	if m.Definition != nil {
		parts = append(parts, fmt.Sprintf("%s with %d columns", m.Definition.Kind, len(m.Definition.Columns)))
	}
	for _, row := range m.Put {
		parts = append(parts, fmt.Sprintf("%s/%s@%s", row.Namespace, row.Name, row.Version))
	}
	for _, key := range m.Gone {
		parts = append(parts, "-"+key.Namespace+"/"+key.Name)
	}
	if len(m.GoneUIDs) > 0 {
		parts = append(parts, fmt.Sprintf("%d gone", len(m.GoneUIDs)))
	}
	if m.Synced {
		parts = append(parts, "synced at "+m.Version)
	}
	if m.Absent {
		parts = append(parts, "absent")
	}
	if m.Again {
		parts = append(parts, fmt.Sprintf("again %v", m.Differ))
	}
	if m.Incomplete != "" {
		parts = append(parts, "incomplete: "+m.Incomplete)
	}
	return strings.Join(parts, ", ")
}
