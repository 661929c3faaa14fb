package proxyapi

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/apigroup"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

const (
	registriesPath = "/apis/search.karmada.io/v1alpha1/resourceregistries"
	// sample is the one of Karmada's documentation.
	sample = `{"apiVersion":"search.karmada.io/v1alpha1","kind":"ResourceRegistry","metadata":{"name":"proxy-sample"},
"spec":{"targetCluster":{"clusterNames":null},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"},{"apiVersion":"v1","kind":"Node"}]}}`
)

// write sends a body, as jane.
func (w *world) write(method, path, contentType, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer hub-token")
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", "application/json")
	resp, err := w.client("http/1.1").Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// registryWorld has ResourceRegistries, and jane, who may do everything with them.
func registryWorld(t *testing.T) *world {
	w := start(t, func(o *Options) { o.KarmadaAPI = true })
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * resourceregistries.search.karmada.io *")
	return w
}

// TestRegistries does with a registry what kubectl does: apply, apply server-side, edit,
// patch, get, delete.
func TestRegistries(t *testing.T) {
	w := registryWorld(t)
	const js, merge, patch, apply = "application/json", "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
	one := registriesPath + "/proxy-sample"
	for _, step := range []struct {
		name, method, path, contentType, body string
		code                                  int
		want                                  string
	}{
		{"none", "GET", one, "", "", 404, `resourceregistries.search.karmada.io \"x\" is wrong`},
		{"dry run", "POST", registriesPath + "?dryRun=All", js, sample, 201, `"kind":"Node"`},
		{"not made", "GET", one, "", "", 404, `"kind":"resourceregistries"`},
		{"unknown field", "POST", registriesPath + "?fieldValidation=Strict", js, strings.Replace(sample, `"spec":{`, `"spec":{"wrong":1,`, 1), 400, `unknown field \"spec.wrong\"`},
		{"made", "POST", registriesPath + "?fieldManager=one", js, sample, 201, `"apiVersion":"search.karmada.io/v1alpha1"`},
		{"made again", "POST", registriesPath, js, sample, 409, "resourceregistries.search.karmada.io"},
		{"read", "GET", one, "", "", 200, `"manager":"one"`},
		{"merge patch", "PATCH", one, merge, `{"spec":{"targetCluster":{"clusterNames":["a"]}},"metadata":{"annotations":{"x":"y"}}}`, 200, `"clusterNames":["a"]`},
		{"JSON patch", "PATCH", one, patch, `[{"op":"replace","path":"/spec/targetCluster/clusterNames/0","value":"b"}]`, 200, `"clusterNames":["b"]`},
		{"another version", "PATCH", one, merge, `{"metadata":{"resourceVersion":"1"},"spec":{"targetCluster":{"clusterNames":["c"]}}}`, 409, "Conflict"},
		{"replaced, any version", "PUT", one, js, sample, 200, `"targetCluster":{}`},
		{"applied", "PATCH", registriesPath + "/applied?fieldManager=two", apply, strings.Replace(sample, "proxy-sample", "applied", 1), 201, `"operation":"Apply"`},
		{"applied again", "PATCH", registriesPath + "/applied?fieldManager=two", apply, strings.NewReplacer("proxy-sample", "applied", "null", `["a"]`).Replace(sample), 200, `"clusterNames":["a"]`},
		{"applied by another", "PATCH", registriesPath + "/applied?fieldManager=three", apply, strings.NewReplacer("proxy-sample", "applied", "null", `["b"]`).Replace(sample), 409, `conflict with \"two\"`},
		{"listed", "GET", registriesPath, "", "", 200, `"kind":"ResourceRegistryList"`},
		{"deleted", "DELETE", one, "", "", 200, `"kind":"resourceregistries"`},
		{"gone", "GET", one, "", "", 404, ""},
		{"all deleted", "DELETE", registriesPath, "", "", 200, `"name":"applied"`},
	} {
		code, body := w.write(step.method, step.path, step.contentType, step.body)
		if code != step.code || !strings.Contains(body, step.want) {
			t.Errorf("%s: %d %s, want %d with %s", step.name, code, body, step.code, step.want)
		}
		if strings.Contains(body, apigroup.ManagedFieldsKey) || strings.Contains(body, "Karmada") || strings.Contains(body, "karmadaresource") {
			t.Errorf("%s shows what it is stored as: %s", step.name, body)
		}
	}
}

// TestRegistriesOfNoVersion replaces a registry that changes meanwhile.
func TestRegistriesOfNoVersion(t *testing.T) {
	w := registryWorld(t)
	w.write("POST", registriesPath, "application/json", sample)
	changes := 2
	w.store.before = func() {
		if changes--; changes >= 0 {
			w.store.mu.Lock()
			defer w.store.mu.Unlock()
			w.store.change("MODIFIED", w.store.objects["proxy-sample"])
		}
	}
	if code, body := w.write("PUT", registriesPath+"/proxy-sample", "application/json", sample); code != 200 || changes >= 0 {
		t.Errorf("after two other changes: %d %s, want 200", code, body)
	}
}

// TestWatchOfRegistries follows registries until the right to it is withdrawn.
func TestWatchOfRegistries(t *testing.T) {
	w := start(t, func(o *Options) { o.KarmadaAPI, o.RevalidateStreams = true, 200*time.Millisecond })
	w.api.User("hub-token", "jane")
	w.api.Allow("jane watch resourceregistries.search.karmada.io *", "jane create resourceregistries.search.karmada.io *")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+registriesPath+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer hub-token")
	resp, err := w.client("http/1.1").Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if code, body := w.write("POST", registriesPath, "application/json", sample); code != 201 {
		t.Fatalf("made: %d %s", code, body)
	}
	lines := bufio.NewReader(resp.Body)
	line, err := lines.ReadString('\n')
	var event struct {
		Type   string
		Object karmadav1alpha1.ResourceRegistry
	}
	if json.Unmarshal([]byte(line), &event) != nil || event.Type != "ADDED" || event.Object.Kind != "ResourceRegistry" || event.Object.Name != "proxy-sample" {
		t.Errorf("event %s, %v, want the registry", line, err)
	}
	w.api.Set(func(h *hubapi.Hub) { h.Rules = nil })
	if _, err := io.ReadAll(lines); err != nil {
		t.Logf("the watch was cut: %v", err)
	}
}

// TestRightsToRegistries asks the hub as the user, for the registries of Karmada's group.
func TestRightsToRegistries(t *testing.T) {
	w := start(t, func(o *Options) { o.KarmadaAPI = true })
	w.api.User("hub-token", "jane")
	w.api.Allow("jane patch resourceregistries.search.karmada.io applied", "jane get resourceregistries.search.karmada.io one", "jane * karmadaresourceregistries *", "jane * resourceregistries *")
	for request, want := range map[string]int{
		"PATCH /applied?fieldManager=a": 403, "GET /one": 404, "GET /two": 403, "GET ": 403, "POST ": 403, "PUT /one": 403, "DELETE /one": 403, "DELETE ": 403, "PATCH /one": 403, "GET ?watch=1": 403,
	} {
		method, path, _ := strings.Cut(request, " ")
		contentType := "application/json"
		if method == "PATCH" {
			contentType = "application/apply-patch+yaml"
		}
		if code, body := w.write(method, registriesPath+path, contentType, strings.Replace(sample, "proxy-sample", "applied", strings.Count(path, "applied"))); code != want {
			t.Errorf("%s: %d %s, want %d", request, code, body, want)
		}
	}
	if resp, _ := w.ask(http.MethodGet, registriesPath, "of-a-cluster"); resp.StatusCode != 401 {
		t.Errorf("with an unknown token: %d, want 401", resp.StatusCode)
	}
}

// TestRegistryTable is what kubectl get shows.
func TestRegistryTable(t *testing.T) {
	w := registryWorld(t)
	w.write("POST", registriesPath, "application/json", sample)
	_, body := w.ask(http.MethodGet, registriesPath, "hub-token", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	table := decode[metav1.Table](t, body)
	if len(table.Rows) != 1 || table.Rows[0].Cells[0] != "proxy-sample" || table.Rows[0].Cells[1] != "Unknown" {
		t.Errorf("table %s, want a row of the registry", body)
	}
}

// TestUnreadWatchOfRegistries stops a watch with an event that nobody reads.
func TestUnreadWatchOfRegistries(t *testing.T) {
	stored := watch.NewFakeWithChanSize(1, false)
	w := &apigroup.RegistryWatch{Stored: stored, Served: make(chan watch.Event), Stopped: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run()
	}()
	stored.Add(&proxyv1alpha1.KarmadaResourceRegistry{})
	w.Stop()
	<-ended
	if _, open := <-w.ResultChan(); open {
		t.Error("an event follows the end")
	}
}
