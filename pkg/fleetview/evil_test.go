package fleetview

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// evilAnswers are what a member can answer, with 200, to any read. It has the cluster's
// name, so that its place in the order of members is the test's.
func evilAnswers() map[string]func(http.ResponseWriter, *http.Request) bool {
	as := func(body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", fleet.JSONType)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	// endless goes on until the reader goes away.
	endless := func(body, more string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			as(body)(w, r)
			block := []byte(strings.Repeat(more, 1<<20/len(more)))
			for {
				if _, err := w.Write(block); err != nil {
					panic(err)
				}
				pause(r, 50*time.Millisecond) // the time of a bubble goes on only while all wait
			}
		}
	}
	drip := func(body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			as(body)(w, r)
			for {
				pause(r, 4*time.Second)
				_, _ = io.WriteString(w, " ")
			}
		}
	}
	secret := `{"metadata":{"name":"stolen","namespace":"shop"}}`
	return map[string]func(http.ResponseWriter, *http.Request) bool{
		"nonsense":                  as("nonsense"),
		"nothing":                   as(""),
		"HTML":                      saying("text/html", "<html>"),
		"no media type":             saying("", `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`),
		"another kind":              as(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` + secret + `]}`),
		"another version":           as(`{"kind":"PodList","apiVersion":"v9","metadata":{"resourceVersion":"9"},"items":[` + secret + `]}`),
		"one object":                as(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"shop","resourceVersion":"9"`),
		"a Status":                  as(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}`),
		"cut in the metadata":       as(`{"kind":"PodList","apiVersion":"v1","metadata":{"resour`),
		"cut in an item":            as(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"x"`),
		"cut between items":         as(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"x"}},`),
		"endless blanks":            endless("", " "),
		"endless name":              endless(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"`, "x"),
		"endless depth":             endless(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`, "["),
		"endless metadata":          endless(`{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"`, "x"),
		"a byte now and then":       drip(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`),
		"a byte now and then later": drip(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"x"}}`),
		"zipped":                    zipped(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`),
		"redirect":                  evilStatus,
	}
}

func pause(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
		panic(r.Context().Err())
	}
}

// zipped says that its body is compressed, which it was not asked for.
func zipped(body string) func(http.ResponseWriter, *http.Request) bool {
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	_, _ = zip.Write([]byte(body))
	_ = zip.Close()
	return func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Encoding", "gzip")
		return saying(fleet.JSONType, buf.String())(w, r)
	}
}

// TestEvilMembers has a member that is first, in the middle or last, and answers with what
// it likes. It is left out with a Warning; all objects of the others are there.
func TestEvilMembers(t *testing.T) {
	long.Test(t)
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for name, answer := range evilAnswers() {
		for _, evil := range []string{"0", "aa", "z"} {
			for _, accept := range []string{fleet.JSONType, table, fleet.JSONType + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
				for _, query := range []string{"", "?limit=500"} {
					if accept != fleet.JSONType && (query != "" || evil != "0") {
						continue // the first one can do most harm
					}
					what := fmt.Sprintf("%s by %s as %q%s", name, evil, accept, query)
					synctest.Test(t, func(t *testing.T) {
						view := testView(newCluster("a", shop+"/web-1"), newCluster("b", shop+"/web-2"), newCluster(evil).failing(answer))
						view.Timeout = 5 * time.Second
						began := time.Now()
						h := New(Options{})
						got := h.getList(t, view, shop+query, "Accept", accept)
						if next := got.list.Metadata.Continue; next != "" { // the last page waits for it
							last := h.getList(t, view, shop+query+"&continue="+next, "Accept", accept)
							got.warnings = append(got.warnings, last.warnings...)
						}
						if took := time.Since(began); took > 2*view.Timeout {
							t.Errorf("%s: answered after %v, want it within two of the view's timeouts", what, took)
						}
						if diff := cmp.Diff([]string{"web-1@a", "web-2@b"}, got.names()); diff != "" {
							t.Errorf("%s: got %d %.300q; names (-want +got):\n%s", what, got.code, got.body, diff)
						}
						if lacks := got.lacks(); len(lacks) != 1 || !strings.HasPrefix(lacks[0], `299 - "cluster `+evil+" did not answer (") {
							t.Errorf("%s: got Warnings %.600q, want one of the member", what, got.warnings)
						}
					})
				}
			}
		}
	}
}

// TestEvilMemberOfEmptyLists lists what no good member has: the empty list is of the right
// kind.
func TestEvilMemberOfEmptyLists(t *testing.T) {
	evil := newCluster("0").failing(saying(fleet.JSONType, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`))
	got := New(Options{}).getList(t, testView(evil, newCluster("a"), newCluster("b")), shop)
	if got.list.Kind != "PodList" || len(got.list.Items) != 0 {
		t.Errorf("got %q, want an empty PodList", got.body)
	}
}

// TestEvilAnnotations has a member that claims to be another one, in every form.
func TestEvilAnnotations(t *testing.T) {
	claim := object{"metadata": map[string]any{"annotations": map[string]any{fleet.AnnotationCluster: "a", "Cluster": "a"}, "labels": map[string]any{"app": "web"}}}
	evil := newCluster("evil")
	evil.set(shop+"/stolen", claim)
	view := testView(newCluster("a", shop+"/web-1"), evil)
	h := New(Options{})
	for _, accept := range []string{fleet.JSONType, "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
		if got := h.getList(t, view, shop, "Accept", accept).names(); !slices.Equal(got, []string{"web-1@a", "stolen@evil"}) {
			t.Errorf("%s: got %q, want the object as evil's", accept, got)
		}
	}
	if got := h.request(t, view, http.MethodGet, shop+"/stolen", "").object(t); got.cluster() != "evil" {
		t.Errorf("by name: it is said to be of %v", got.cluster())
	}
}

// TestEvilGet has members that answer with nonsense to a request for one object. A name is
// never taken for another's, and no answer is taken for the object.
func TestEvilGet(t *testing.T) {
	for name, answer := range evilAnswers() {
		synctest.Test(t, func(t *testing.T) {
			view := testView(newCluster("a", shop+"/web-1"), newCluster("evil").failing(answer))
			view.Timeout = 5 * time.Second
			h := New(Options{})
			if got := h.request(t, view, http.MethodGet, shop+"/web-1@a", ""); got.code != http.StatusOK || got.object(t).cluster() != "a" {
				t.Errorf("%s: got %d %.300q of the other member, want its object", name, got.code, got.body)
			}
			began := time.Now()
			got := h.request(t, view, http.MethodGet, shop+"/web-1@evil", "")
			if took := time.Since(began); took > 2*view.Timeout {
				t.Errorf("%s: answered after %v, want it within two of the view's timeouts", name, took)
			}
			if got.code < 500 && !strings.HasPrefix(name, "another") && name != "a Status" && name != "no media type" {
				t.Errorf("%s: got %d %.300q of it, want an error", name, got.code, got.body)
			}
		})
	}
}

// TestEvilMemory bounds the memory that an endless answer takes.
func TestEvilMemory(t *testing.T) {
	for _, name := range []string{"endless blanks", "endless name", "endless depth", "endless metadata"} {
		synctest.Test(t, func(t *testing.T) {
			view := testView(newCluster("a", shop+"/web-1"), newCluster("evil").failing(evilAnswers()[name]))
			view.Timeout = 5 * time.Second
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			got := New(Options{}).getList(t, view, shop)
			runtime.ReadMemStats(&after)
			if len(got.names()) != 1 {
				t.Errorf("%s: got %.300q, want the object of the other", name, got.body)
			}
			if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 160 {
				t.Errorf("%s: %d MiB were allocated, want no more than 160: an item may have 16, and its buffer doubles", name, grown)
			}
		})
	}
}

// TestHalfReadItems has a member that sends much of an item and then nothing, to many requests
// of one user. The memory held for that user is bounded, and another user is served meanwhile.
func TestHalfReadItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"` + strings.Repeat("x", 6<<20))
		evil := newCluster("evil").failing(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, shop) {
				return false
			}
			w.Header().Set("Content-Type", fleet.JSONType)
			_, _ = w.Write(half)
			pause(r, time.Hour)
			return true
		})
		large := strings.Repeat("y", 3<<20)
		good := newCluster("a", shop+"/web-1")
		good.set("/api/v1/namespaces/other/pods/web-2", object{"metadata": map[string]any{"labels": map[string]any{"app": large}}})
		view := testView(good, evil)
		view.User, view.Timeout = "tess", 5*time.Second
		h := New(Options{})
		var requests sync.WaitGroup
		for range 20 {
			requests.Go(func() {
				if got := h.getList(t, view, shop); len(got.names()) != 1 || len(got.lacks()) != 1 {
					t.Errorf("got %d %.300q, want the object of the other and a Warning", got.code, got.body)
				}
			})
			synctest.Wait() // one after another: requests that grow in step all give up at the bound
		}
		h.held.Mu.Lock()
		held := h.held.ByUser["tess"]
		h.held.Mu.Unlock()
		if held > fleet.HeldByUser || held < fleet.HeldByUser/2 {
			t.Errorf("%d MiB are held for the user, want %d at most, and half of that or the test shows nothing", held>>20, fleet.HeldByUser>>20)
		}
		ann := testView(good)
		ann.User = "ann"
		if got := h.getList(t, ann, "/api/v1/namespaces/other/pods"); len(got.names()) != 1 {
			t.Errorf("another user got %d %.300q, want a large object", got.code, got.body)
		}
		requests.Wait()
		if h.held.All != 0 {
			t.Errorf("%d bytes are held when all requests have ended, want none", h.held.All)
		}
	})
}
