package fleetview

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

func newSwaggerPaths(t *testing.T, response *http.Response) []string {
	t.Helper()
	var document struct{ Paths map[string]any }
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(document.Paths))
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
func (endless) Close() error { return nil }

func TestDiscoveryOfEvilMembers(t *testing.T) {
	for name, test := range map[string]struct {
		intercept func(*http.Request) (*http.Response, error)
		warning   string
	}{
		"error":        {func(*http.Request) (*http.Response, error) { return nil, errors.New("no tunnel since 10:02") }, "did not answer (no tunnel since 10:02)"},
		"nonsense":     {answering(200, "<html>"), "unexpected character '<'"},
		"other kind":   {answering(200, `{"kind":"PodList"}`), `kind is \"PodList\"`},
		"null":         {answering(200, `null`), `kind is \"\"`},
		"deep":         {answering(200, `{"x":`+strings.Repeat("[", 1<<20)), "nests deeper than 10000"},
		"unavailable":  {answering(503, `{"kind":"Status","message":"etcd\nis down"}`), "refused (etcd is down)"},
		"control code": {func(*http.Request) (*http.Response, error) { return nil, errors.New("a\r\nb\x00\u0085") }, "(a  b  )"},
		"endless": {func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: endless{}}, nil
		}, "more than 16384 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			evil := newDiscoveryMember("evil", "v9.9.9", aggregatedFormat)
			evil.intercept = test.intercept
			members := append(asMembers(evil), twoMembers(aggregatedFormat)...)
			response := ask(t, discovery.NewDiscovery(), discoveryView(), members, "/apis")
			warnings := response.Header.Values("Warning")
			if response.StatusCode != http.StatusOK || len(warnings) != 1 || !strings.Contains(warnings[0], test.warning) ||
				!strings.HasPrefix(warnings[0], `299 - "cluster evil `) {
				t.Errorf("answer is %s with warnings %q, want 200 with one about %q", response.Status, warnings, test.warning)
			}
		})
	}
}

func TestDiscoveryWithoutAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		a, b    func(*http.Request) (*http.Response, error)
		want    int
		message string
	}{
		"forbidden":    {answering(403, "no"), answering(403, "no"), 403, "each cluster of view \"all\" refused the request: cluster a"},
		"unauthorized": {answering(401, "no"), answering(401, "no"), 401, "each cluster"},
		"both":         {answering(403, "no"), answering(502, "no"), 503, "cluster b refused (502 Bad Gateway: no)"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := &discoveryMember{name: "a", intercept: test.a}, &discoveryMember{name: "b", intercept: test.b}
			response := ask(t, discovery.NewDiscovery(), discoveryView(), asMembers(a, b), "/api")
			body, _ := io.ReadAll(response.Body)
			if response.StatusCode != test.want || !strings.Contains(string(body), strings.ReplaceAll(test.message, `"`, `\"`)) {
				t.Errorf("answer is %s: %s, want %d with %q", response.Status, body, test.want, test.message)
			}
		})
	}
	if response := ask(t, discovery.NewDiscovery(), discoveryView(), nil, "/api"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a view without members answers %s, want 503", response.Status)
	}
}

// elapsed returns how long f takes, in the time of a synctest bubble.
func elapsed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func TestFrozenMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, members := discovery.NewDiscovery(), twoMembers(aggregatedFormat)
		old := members[0].(*discoveryMember)
		view := discoveryView()
		view.Timeout = 3 * time.Second
		old.setIntercept(frozen)
		var known *discovery.Resources
		if took := elapsed(func() { known = d.Catalog(t.Context(), view, members, discovery.FreshFor) }); took != view.Timeout {
			t.Errorf("the catalog took %v, want the view's timeout of %v", took, view.Timeout)
		}
		if _, ok := known.Unknown["old"]; !ok || known.Versions["young"] == "" {
			t.Errorf("the catalog has %v and unknown %v, want old unknown", known.Versions, known.Unknown)
		}
		widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
		if took := elapsed(func() { ask(t, d, view, members, "/apis") }); took != 0 {
			t.Errorf("a second request took %v, want none: the member is known to be frozen", took)
		}
		old.setIntercept(nil)
		time.Sleep(discovery.FailureFor)
		if found, ok := d.Catalog(t.Context(), view, members, discovery.FreshFor).Find(widgets); !ok {
			t.Errorf("found %v, want widgets: the member answers again", found)
		}
		old.setIntercept(frozen)
		time.Sleep(discovery.FreshFor + 1)
		if _, ok := d.Catalog(t.Context(), view, members, discovery.FreshFor).Find(widgets); !ok {
			t.Error("widgets are gone with a former answer known")
		}
		response := ask(t, d, view, members, "/apis/example.com")
		if warnings := response.Header.Values("Warning"); response.StatusCode != http.StatusOK || len(warnings) != 1 || !strings.Contains(warnings[0], "is used") {
			t.Errorf("answer is %s with warnings %q, want 200 and that a former answer is used", response.Status, warnings)
		}
		time.Sleep(discovery.StaleFor)
		if response := ask(t, d, view, members, "/apis/example.com"); response.StatusCode != http.StatusNotFound {
			t.Errorf("answer is %s, want 404: the former answer is too old", response.Status)
		}
		time.Sleep(view.Timeout) // the last requests end
	})
}

func TestDiscoveryForgetsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, members := discovery.NewDiscovery(), twoMembers(aggregatedFormat)
		ask(t, d, discoveryView(), members, "/apis")
		members[0].(*discoveryMember).setIntercept(answering(403, "no"))
		time.Sleep(discovery.FreshFor + 1)
		if response := ask(t, d, discoveryView(), members, "/apis/example.com"); response.StatusCode != http.StatusNotFound {
			t.Errorf("answer is %s, want 404: the member refuses the user now", response.Status)
		}
	})
}

func TestDiscoveryOfManyMembers(t *testing.T) {
	d, view := discovery.NewDiscovery(), discoveryView()
	var members []fleet.Member
	for i := range 500 {
		members = append(members, newDiscoveryMember(fmt.Sprintf("c%03d", i), "v1.36.3", aggregatedFormat, testGroup("", "v1", "pods"), testGroup("apps", "v1", "deployments")))
	}
	lost := 12
	for i := range lost {
		members[i].(*discoveryMember).intercept = func(*http.Request) (*http.Response, error) { return nil, errors.New("no tunnel") }
	}
	for range 2 {
		response := ask(t, d, view, members, "/apis")
		warnings := response.Header.Values("Warning")
		if len(warnings) != fault.MaxNamed+1 || !strings.Contains(warnings[fault.MaxNamed], "2 more clusters did not answer; their resources") {
			t.Errorf("got warnings %q, want %d and a count", warnings, fault.MaxNamed)
		}
	}
	found, _ := d.Catalog(t.Context(), view, members, discovery.FreshFor).Find(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	if want := len(members) - lost; len(found.Clusters) != want {
		t.Errorf("%d clusters serve pods, want %d", len(found.Clusters), want)
	}
	for _, member := range members[lost:] {
		for _, path := range []string{"/api", "/apis", "/version"} {
			if got := member.(*discoveryMember).asked(path); got != 1 {
				t.Errorf("%s was asked %d times for %s, want once", member.Name(), got, path)
			}
		}
	}
	other := view
	other.User = "bob"
	d.Catalog(t.Context(), other, members, discovery.FreshFor)
	if got := members[lost].(*discoveryMember).asked("/apis"); got != 2 {
		t.Errorf("a member was asked %d times for two users, want 2", got)
	}
}

// TestDiscoveryAsksSomeAtATime has 1,000 members that answer one request after the other, as a hub
// does whose processors are busy. If all were asked at once, most would be late.
func TestDiscoveryAsksSomeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := discoveryView()
		view.Timeout = 5 * time.Second
		busy := make(chan struct{}, 1)
		var begun, most atomic.Int64
		var members []fleet.Member
		for i := range 1000 {
			m := newDiscoveryMember(fmt.Sprintf("c%03d", i), "v1.36.3", aggregatedFormat, testGroup("", "v1", "pods"))
			m.intercept = func(r *http.Request) (*http.Response, error) {
				if n := begun.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer begun.Add(-1)
				busy <- struct{}{}
				defer func() { <-busy }()
				time.Sleep(5 * time.Millisecond)
				return nil, r.Context().Err()
			}
			members = append(members, m)
		}
		response := ask(t, discovery.NewDiscovery(), view, members, "/api")
		if warnings := response.Header.Values("Warning"); len(warnings) > 0 {
			t.Errorf("members that have time to answer are missing: %q", warnings)
		}
		const each = 3 // requests to a member
		if got := most.Load(); got > each*fleet.MaxAsked {
			t.Errorf("%d requests were under way at a time, want %d at most", got, each*fleet.MaxAsked)
		}
	})
}

// TestDiscoveryOfSilentMembers has more members that do not answer than there is time for. A client
// is answered before kubectl gives up, and the members that were not asked come first the next time.
func TestDiscoveryOfSilentMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, view := discovery.NewDiscovery(), discoveryView()
		view.Timeout = 5 * time.Second
		var members []fleet.Member
		for i := range 500 {
			m := newDiscoveryMember(fmt.Sprintf("silent%03d", i), "v1.36.3", aggregatedFormat, testGroup("", "v1", "pods"))
			m.intercept = func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			members = append(members, m)
		}
		members = append(members, newDiscoveryMember("well", "v1.36.3", aggregatedFormat, testGroup("", "v1", "pods")))
		for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK} {
			began := time.Now()
			response := ask(t, d, view, members, "/api")
			if response.StatusCode != want {
				t.Errorf("answered %s, want %d", response.Status, want)
			}
			if took := time.Since(began); took > discovery.MaxAsking+view.Timeout {
				t.Errorf("answered after %s, want %s at most", took, discovery.MaxAsking+view.Timeout)
			}
		}
	})
}

func TestOpenAPIDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, view, members := discovery.NewDiscovery(), discoveryView(), twoMembers(aggregatedFormat)
		old := members[0].(*discoveryMember)
		documents := func() map[string]string {
			var index struct {
				Paths map[string]struct{ ServerRelativeURL string }
			}
			if err := json.NewDecoder(ask(t, d, view, members, "/openapi/v3").Body).Decode(&index); err != nil {
				t.Fatal(err)
			}
			urls := map[string]string{}
			for path, entry := range index.Paths {
				urls[path] = entry.ServerRelativeURL
			}
			return urls
		}
		before := documents()
		get := func(want, wantCache string) {
			t.Helper()
			response := ask(t, d, view, members, before["api/v1"], "Accept", fleet.JSONType)
			body, _ := io.ReadAll(response.Body)
			if cache := response.Header.Get("Cache-Control"); !strings.Contains(string(body), want) || cache != wantCache {
				t.Errorf("document is %q with Cache-Control %q, want the one of %q with %q", body, cache, want, wantCache)
			}
		}
		get("old", "private, immutable")
		changed := newDiscoveryMember("changed", "v1.28.4", aggregatedFormat, testGroup("", "v1", "pods", "nodes!"), testGroup("example.com", "v1", "widgets"))
		old.setIntercept(func(r *http.Request) (*http.Response, error) { return changed.RoundTrip(r) })
		get("changed", "no-cache, private") // the client must not keep it as what it asked for
		time.Sleep(discovery.FreshFor + 1)
		if after := documents(); after["api/v1"] == before["api/v1"] || after["apis/apps/v1"] != before["apis/apps/v1"] {
			t.Errorf("documents were %v and are %v, want another hash for api/v1 only", before, after)
		}
		old.setIntercept(answering(500, "no"))
		get("young", "no-cache, private")
	})
}

// TestOpenAPIDocumentOfMost has members with the same document, of which one answers with
// another one than it says.
func TestOpenAPIDocumentOfMost(t *testing.T) {
	group := testGroup("", "v1", "pods")
	good := newDiscoveryMember("good", "v1.36.3", aggregatedFormat, group)
	var members []fleet.Member
	for _, name := range []string{"0-evil", "a", "b"} {
		m := newDiscoveryMember(name, "v1.36.3", aggregatedFormat, group)
		m.handler = good.handler
		members = append(members, m)
	}
	evil := members[0].(*discoveryMember)
	evil.intercept = func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/openapi/v3/") || r.URL.Path == "/openapi/v2" {
			return answering(200, `{"swagger":"2.0","info":{"title":"stolen"}}`)(r)
		}
		return nil, nil
	}
	d := discovery.NewDiscovery()
	for _, path := range []string{"/openapi/v3/api/v1", "/openapi/v2"} {
		body, _ := io.ReadAll(ask(t, d, discoveryView(), members, path, "Accept", fleet.JSONType).Body)
		if !strings.Contains(string(body), "good") || strings.Contains(string(body), "stolen") {
			t.Errorf("%s is answered %.300q, want the document of most", path, body)
		}
	}
	if got := evil.asked("/openapi/v3/api/v1"); got != 1 {
		t.Errorf("the first member was asked %d times for a document, want once: else nothing is shown", got)
	}
}

func TestOpenAPIDocumentTooLarge(t *testing.T) {
	endlessly := func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/openapi/v3/") {
			return &http.Response{StatusCode: 200, Body: endless{}, Header: http.Header{}}, nil
		}
		return nil, nil
	}
	d, members := discovery.NewDiscovery(), twoMembers(aggregatedFormat)
	members[0].(*discoveryMember).setIntercept(endlessly)
	body, _ := io.ReadAll(ask(t, d, discoveryView(), members, "/openapi/v3/api/v1", "Accept", fleet.JSONType).Body)
	if !strings.Contains(string(body), "young") {
		t.Errorf("answered %.300q, want the document of the other member", body)
	}
	members[1].(*discoveryMember).setIntercept(endlessly)
	response := ask(t, d, discoveryView(), members, "/openapi/v3/api/v1")
	body, _ = io.ReadAll(response.Body)
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "more than 32768 KiB") {
		t.Errorf("an endless document is answered %s: %.300q, want 503 and why", response.Status, body)
	}
}

// TestVersionOfMembers has members that differ. A version that only one of them
// has is neither the oldest nor the newest.
func TestVersionOfMembers(t *testing.T) {
	for name, test := range map[string]struct {
		versions map[string]string
		want     string
		order    []string
	}{
		"the oldest that two have":    {map[string]string{"a": "v1.36.3", "b": "v1.36.3", "c": "v1.34.1", "d": "v1.34.1"}, "v1.34.1", []string{"a", "b", "c", "d"}},
		"an old one that one says":    {map[string]string{"0": "v0.0.1", "a": "v1.36.3", "b": "v1.36.3"}, "v1.36.3", []string{"a", "b", "0"}},
		"a lone one that is near":     {map[string]string{"0": "v1.35.0", "a": "v1.36.3", "b": "v1.36.3"}, "v1.36.3", []string{"a", "b", "0"}},
		"a new one that one says":     {map[string]string{"0": "v1.999.0", "a": "v1.36.3", "b": "v1.36.3"}, "v1.36.3", []string{"a", "b", "0"}},
		"two that are near":           {map[string]string{"a": "v1.36.3", "b": "v1.34.1"}, "v1.34.1", []string{"a", "b"}},
		"two that are not near":       {map[string]string{"a": "v1.36.3", "b": "v0.0.1"}, "v1.36.3", []string{"a", "b"}},
		"an old one beside two":       {map[string]string{"0": "v0.0.1", "a": "v1.36.3", "b": "v1.35.1"}, "v1.35.1", []string{"0", "a", "b"}},
		"most of a release":           {map[string]string{"0": "v1.36.0-evil", "a": "v1.36.3", "b": "v1.36.3"}, "v1.36.3", []string{"0", "a", "b"}},
		"one that is none":            {map[string]string{"0": "nonsense", "a": "v1.36.3"}, "v1.36.3", []string{"0", "a"}},
		"one that contradicts itself": {map[string]string{"0": `v1.36.0","major":"0`, "a": "v1.36.3"}, "v1.36.3", []string{"0", "a"}},
	} {
		var members []fleet.Member
		for _, member := range slices.Sorted(maps.Keys(test.versions)) {
			m := newDiscoveryMember(member, "", aggregatedFormat, testGroup("", "v1", "pods"))
			m.intercept = func(r *http.Request) (*http.Response, error) {
				if r.URL.Path != "/version" {
					return nil, nil
				}
				return answering(200, `{"gitVersion":"`+test.versions[member]+`"}`)(r)
			}
			members = append(members, m)
		}
		known := discovery.NewDiscovery().Catalog(t.Context(), discoveryView(), members, discovery.FreshFor)
		var order []string
		for _, m := range known.Members {
			order = append(order, m.Name())
		}
		if got := string(known.GitVersion()); got != `{"gitVersion":"`+test.want+`"}` || !slices.Equal(order, test.order) {
			t.Errorf("%s: got version %s and order %q, want %s and %q", name, got, order, test.want, test.order)
		}
	}
}

func TestSized(t *testing.T) {
	s := fleet.NewSized[string, int](3)
	s.Put("a", 1, 1)
	s.Put("b", 2, 2)
	s.Get("a")
	s.Put("c", 3, 1)
	s.Put("d", 4, 4)
	got := map[string]int{}
	for _, key := range []string{"a", "b", "c", "d"} {
		if v, ok := s.Get(key); ok {
			got[key] = v
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "c": 3}, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}
