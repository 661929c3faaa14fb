package fleetview

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// newReplicas makes Handlers that ask each other.
func newReplicas(n int) []*Handler {
	all := make([]*Handler, n)
	for i := range all {
		positions := &position.Store{Ask: func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
			for j, other := range all {
				if j != i && take(other.positions.Answer(v, owner)) {
					break
				}
			}
			return true
		}}
		all[i] = New(Options{Positions: positions})
	}
	return all
}

// TestListOfReplicas lists pages on two replicas, and watches from the list on a third one.
func TestListOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newCluster("a", pods(5)...), newCluster("b", pods(4)...), newCluster("c", pods(3)...)
		view, replicas := testView(a, b, c), newReplicas(3)
		// Far ahead: no client's version would be followed there.
		replicas[1].clock.After(time.Now().Add(365 * 24 * time.Hour).UnixMicro())
		var names []string
		at, token := "", ""
		for i := 1; i == 1 || token != ""; i++ {
			page := replicas[i%2].getList(t, view, shop+"?limit=2&continue="+url.QueryEscape(token))
			if page.code != 200 || at != "" && page.list.Metadata.ResourceVersion != at {
				t.Fatalf("page %d: got %d with version %s, want 200 with %s", i, page.code, page.list.Metadata.ResourceVersion, at)
			}
			names = append(names, page.names()...)
			at, token = page.list.Metadata.ResourceVersion, page.list.Metadata.Continue
		}
		if len(names) != 12 {
			t.Errorf("got %q on all pages, want 12 names", names)
		}
		for i, m := range []*cluster{a, b, c} {
			m.set(shop+"/new", object{"metadata": map[string]any{"labels": map[string]any{"i": fmt.Sprint(i)}}})
		}
		for i, h := range replicas {
			answer := h.request(t, view, "GET", shop+"?watch=true&timeoutSeconds=5&resourceVersion="+at, "")
			var events []string
			last := at
			for line := range strings.Lines(answer.body) {
				var event struct {
					Type   string
					Object struct {
						Metadata struct {
							Name, ResourceVersion string
							Annotations           map[string]string
						}
					}
				}
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Fatal(err)
				}
				meta := event.Object.Metadata
				if events = append(events, event.Type+" "+meta.Annotations[fleet.AnnotationCluster]+"/"+meta.Name); meta.ResourceVersion <= last {
					t.Errorf("replica %d: version %s follows %s", i, meta.ResourceVersion, last)
				}
				last = meta.ResourceVersion
			}
			slices.Sort(events)
			if diff := cmp.Diff([]string{"ADDED a/new", "ADDED b/new", "ADDED c/new"}, events); diff != "" || answer.code != 200 {
				t.Errorf("replica %d: got %d with events (-want +got):\n%s", i, answer.code, diff)
			}
		}
	})
}

// TestContinueOfAnotherUser has a user go on with another's continue token, who then goes on
// herself, with a renewed token of her own. A watch sends her the objects that she has not listed.
func TestContinueOfAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", pods(2)...), newCluster("b", pods(1)...)
		ann, evil, h := testView(a, b), testView(a, b), New(Options{})
		evil.User, evil.Account = "evil", "evil"
		first := h.getList(t, ann, shop+"?limit=2").list.Metadata
		rest := shop + "?limit=2&continue=" + url.QueryEscape(first.Continue)
		if page := h.getList(t, evil, rest); page.code != 200 || page.list.Metadata.Continue != "" {
			t.Fatalf("evil's page: got %d with %q, want the last one", page.code, page.list.Metadata.Continue)
		}
		b.set(shop+"/before", nil)
		ann.User = "ann, with another token"
		if page := h.getList(t, ann, rest); len(page.names()) != 2 {
			t.Fatalf("ann's page: got %d %q, want 2 names", page.code, page.names())
		}
		b.set(shop+"/after", nil)
		answer := h.request(t, ann, http.MethodGet, shop+"?watch=true&timeoutSeconds=5&resourceVersion="+first.ResourceVersion, "")
		if answer.code != 200 || strings.Contains(answer.body, `"before"`) || !strings.Contains(answer.body, `"after"`) {
			t.Errorf("ann's watch: got %d %s, want the event after her list", answer.code, answer.body)
		}
		for _, query := range []string{"?watch=true&timeoutSeconds=5&resourceVersion=", "?resourceVersionMatch=Exact&resourceVersion="} {
			if answer = h.request(t, testView(a, b), http.MethodGet, shop+query+h.getList(t, evil, shop).list.Metadata.ResourceVersion, ""); answer.code != http.StatusGone {
				t.Errorf("%s of another user: got %d, want 410", query, answer.code)
			}
		}
	})
}

// TestListIsNotOlder lists on a replica whose clock is behind the one that a client knows.
func TestListIsNotOlder(t *testing.T) {
	replicas := newReplicas(2)
	view := testView(newCluster("a", shop+"/x"))
	replicas[0].clock.After(time.Now().Add(5 * time.Second).UnixMicro())
	first := replicas[0].getList(t, view, shop).list.Metadata.ResourceVersion
	for _, match := range []string{"", "&resourceVersionMatch=NotOlderThan"} {
		next := replicas[1].getList(t, view, shop+"?resourceVersion="+first+match)
		if got := next.list.Metadata.ResourceVersion; next.code != 200 || got <= first {
			t.Errorf("%q: got %d with version %q, want one that is greater than %s", match, next.code, got, first)
		}
	}
}

// TestInformerOverRestarts replaces the replica that serves an informer of client-go again
// and again under writes. The informer lists once.
func TestInformerOverRestarts(t *testing.T) {
	a, b := newCluster("a", shop+"/x"), newCluster("b", shop+"/x")
	view := testView(a, b)
	view.Qualified = true
	type process struct {
		*Handler
		drain   chan struct{}
		serving *sync.WaitGroup
	}
	var mu sync.Mutex
	var running []process
	lists := 0
	start := func() {
		p := process{drain: make(chan struct{}), serving: new(sync.WaitGroup)}
		positions := &position.Store{Ask: func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
			mu.Lock()
			others := slices.Clone(running)
			mu.Unlock()
			for _, other := range others {
				if other.Handler != p.Handler && take(other.positions.Answer(v, owner)) {
					break
				}
			}
			return true
		}}
		p.Handler = New(Options{Draining: p.drain, Positions: positions})
		mu.Lock()
		defer mu.Unlock()
		running = append(running, p)
	}
	start()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		newest := running[len(running)-1]
		if query := r.URL.Query(); !query.Has("watch") || query.Has("sendInitialEvents") {
			lists++
		}
		newest.serving.Add(1)
		mu.Unlock()
		defer newest.serving.Done()
		newest.Serve(w, r, view)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.AcceptContentTypes, config.ContentType = fleet.JSONType, fleet.JSONType
	informer := started(t, informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0).Core().V1().Pods().Informer())
	want := []string{"x@a a ", "x@b b "}
	awaitStored(t, informer, "at first", want...)
	for round := range 10 {
		write := func(m *cluster, when string) {
			name := fmt.Sprint("n", round, when)
			m.set(shop+"/"+name, nil)
			want = append(want, fmt.Sprintf("%s@%s %s ", name, m.name, m.name))
			slices.Sort(want)
		}
		write(a, "before")
		awaitStored(t, informer, fmt.Sprintf("round %d, before it", round), want...)
		write(b, "within")
		start()
		mu.Lock()
		old := running[0]
		mu.Unlock()
		close(old.drain)
		write(a, "after")
		awaitStored(t, informer, fmt.Sprintf("round %d, while the former one answers", round), want...)
		old.serving.Wait() // until then it may give versions that it has not told
		mu.Lock()
		next := running[1]
		mu.Unlock()
		messages, _ := old.positions.Export(0)
		for message := range messages {
			if err := next.positions.Import(message); err != nil {
				t.Error(err)
			}
		}
		mu.Lock()
		running = running[1:]
		mu.Unlock()
		write(b, "at the end")
		awaitStored(t, informer, fmt.Sprintf("round %d, at its end", round), want...)
	}
	mu.Lock()
	defer mu.Unlock()
	if lists != 1 {
		t.Errorf("the informer has listed %d times, want once", lists)
	}
}
