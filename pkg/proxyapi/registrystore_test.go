package proxyapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/apigroup"
)

// fakeRegistries are the rules of registries.
type fakeRegistries struct {
	rules []clusters.RegistryRule
	err   error
}

func (f *fakeRegistries) Rules() ([]clusters.RegistryRule, error) { return f.rules, f.err }

// add adds a registry of clusters with kinds, as "GROUP KIND NAMESPACE".
func (f *fakeRegistries) add(names []string, kinds ...string) {
	for _, kind := range kinds {
		parts := append(strings.Split(kind, " "), "")
		f.rules = append(f.rules, clusters.RegistryRule{
			RegistryResource: clusters.RegistryResource{Group: parts[0], Kind: parts[1], Namespace: parts[2]},
			Selects:          func(cluster string) bool { return slices.Contains(names, cluster) },
		})
	}
}

// registryStore serves KarmadaResourceRegistries as the hub's kube-apiserver does, as far as
// the proxy API asks it.
type registryStore struct {
	server *httptest.Server

	mu      sync.Mutex
	version int
	objects map[string]map[string]any
	events  []map[string]any
	changed chan struct{}
	// before is called, if it is set, before an object is replaced.
	before func()
}

func newRegistryStore(t testing.TB) *registryStore {
	s := &registryStore{objects: map[string]map[string]any{}, changed: make(chan struct{})}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

func (s *registryStore) client(t testing.TB) rest.Interface {
	client, err := apigroup.NewStore(&rest.Config{Host: s.server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *registryStore) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *registryStore) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	s.answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: `karmadaresourceregistries.proxy.open-cluster-management.io "x" is wrong`, Details: &metav1.StatusDetails{Group: "proxy.open-cluster-management.io", Kind: apigroup.StoredRegistries}})
}

// change stores what has happened to an object.
func (s *registryStore) change(kind string, object map[string]any) map[string]any {
	s.version++
	meta := object["metadata"].(map[string]any)
	meta["resourceVersion"] = strconv.Itoa(s.version)
	if meta["uid"] == nil {
		meta["uid"] = "uid-" + strconv.Itoa(s.version)
	}
	s.objects[meta["name"].(string)] = object
	if kind == "DELETED" {
		delete(s.objects, meta["name"].(string))
	}
	s.events = append(s.events, map[string]any{"type": kind, "object": object})
	close(s.changed)
	s.changed = make(chan struct{})
	return object
}

func (s *registryStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && s.before != nil {
		s.before()
	}
	if r.URL.Query().Get("watch") == "true" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var object map[string]any
	_ = json.Unmarshal(body, &object)
	name := path.Base(r.URL.Path)
	there := s.objects[name]
	dry := r.URL.Query().Get("dryRun") != ""
	switch {
	case r.Method == http.MethodGet && name == apigroup.StoredRegistries:
		items := []any{}
		for _, o := range s.objects {
			items = append(items, o)
		}
		s.answer(w, 200, map[string]any{"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "KarmadaResourceRegistryList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
	case r.Method == http.MethodPost && s.objects[object["metadata"].(map[string]any)["name"].(string)] != nil:
		s.refuse(w, 409, metav1.StatusReasonAlreadyExists)
	case r.Method == http.MethodPost && dry, r.Method == http.MethodPut && dry:
		s.answer(w, 200, object)
	case r.Method == http.MethodPost:
		s.answer(w, 201, s.change("ADDED", object))
	case there == nil:
		s.refuse(w, 404, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet:
		s.answer(w, 200, there)
	case r.Method == http.MethodPut && object["metadata"].(map[string]any)["resourceVersion"] != there["metadata"].(map[string]any)["resourceVersion"]:
		s.refuse(w, 409, metav1.StatusReasonConflict)
	case r.Method == http.MethodPut:
		s.answer(w, 200, s.change("MODIFIED", object))
	case r.Method == http.MethodDelete:
		s.change("DELETED", there)
		s.answer(w, 200, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success", "details": map[string]any{"name": name, "group": "proxy.open-cluster-management.io", "kind": apigroup.StoredRegistries}})
	}
}

func (s *registryStore) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	for sent := 0; ; {
		s.mu.Lock()
		events, changed := s.events[sent:], s.changed
		sent += len(events)
		for _, event := range events {
			_ = json.NewEncoder(w).Encode(event)
		}
		s.mu.Unlock()
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
