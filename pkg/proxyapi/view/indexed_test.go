package view

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// kubectlsTable is what package fleetview asks a member for if kubectl get asks the view.
const kubectlsTable = "application/json; as=Table; g=meta.k8s.io; v=v1"

// TestListOf says which requests the index may answer: those that it is told all of.
func TestListOf(t *testing.T) {
	pods := list{resource: feed.Resource{Resource: "pods"}, version: "v1", metadata: true}
	with := func(change func(*list)) *list {
		l := pods
		change(&l)
		return &l
	}
	ofIndex, ofMember := base64.RawURLEncoding.EncodeToString([]byte("\x00\xffsealed")), base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":7,"start":"web\u0000"}`))
	for path, want := range map[string]*list{
		"GET /api/v1/pods":                                          &pods,
		"GET /api/v1/pods?limit=500":                                with(func(l *list) { l.limit = 500 }),
		"GET /apis/apps/v1/namespaces/shop/deployments":             {resource: feed.Resource{Group: "apps", Resource: "deployments"}, version: "v1", namespace: "shop", metadata: true},
		"GET /api/v1/pods?labelSelector=app%3Dweb":                  with(func(l *list) { l.labels = "app=web" }),
		"GET /api/v1/pods?fieldSelector=metadata.name%3Dweb":        with(func(l *list) { l.columns = "metadata.name=web" }),
		"GET /api/v1/pods?fieldSelector=metadata.namespace%21%3Da":  with(func(l *list) { l.columns = "metadata.namespace!=a" }),
		"GET /api/v1/pods?includeObject=None":                       with(func(l *list) { l.metadata = false }),
		"GET /api/v1/pods?includeObject=Metadata&resourceVersion=0": &pods,
		"GET /api/v1/pods?continue=" + ofIndex:                      &pods,
		"GET /api/v1/pods?continue=" + ofMember:                     nil,
		"GET /api/v1/pods?includeObject=Object":                     nil,
		"GET /api/v1/pods?fieldSelector=spec.nodeName%3Da":          nil,
		"GET /api/v1/pods?labelSelector=%21%21":                     nil,
		"GET /api/v1/pods?resourceVersion=7":                        nil,
		"GET /api/v1/pods?resourceVersion=0&resourceVersionMatch=x": nil,
		"GET /api/v1/pods?limit=-1":                                 nil,
		"GET /api/v1/pods?limit=1&limit=2":                          nil,
		"GET /api/v1/pods?sendInitialEvents=true":                   nil,
		"GET /api/v1/pods?watch=1":                                  nil,
		"GET /api/v1/namespaces/a/pods/web":                         nil,
		"GET /api/v1/namespaces/a/pods/web/status":                  nil,
		"GET /version":                     nil,
		"POST /api/v1/namespaces/a/pods":   nil,
		"DELETE /api/v1/namespaces/a/pods": nil,
		"HEAD /api/v1/pods":                nil,
		"full objects GET /api/v1/pods":    nil,
		"former GET /api/v1/pods":          nil,
		"metadata GET /api/v1/pods":        nil,
	} {
		accept := kubectlsTable
		for of, other := range map[string]string{"full objects ": "application/json", "former ": strings.Replace(kubectlsTable, "v=v1", "v=v1beta1", 1), "metadata ": strings.Replace(kubectlsTable, "Table", "PartialObjectMetadataList", 1)} {
			if rest, ok := strings.CutPrefix(path, of); ok {
				path, accept = rest, other
			}
		}
		method, target, _ := strings.Cut(path, " ")
		r := httptest.NewRequest(method, target, nil)
		r.Header.Set("Accept", accept)
		info, err := apirequest.Resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		got, token, ok := listOf(r, info)
		if ok != (want != nil) || ok && got != *want || ok && token != r.URL.Query().Get("continue") {
			t.Errorf("%s as %s: %+v, %q, %t; want %+v", path, accept, got, token, ok, want)
		}
	}
}

// fakeIndex answers questions with a function.
type fakeIndex func(ctx context.Context, request *indexapi.TablesRequest, take func(int) error, visit func(*indexapi.Head, []byte) error) error

func (f fakeIndex) Tables(ctx context.Context, request *indexapi.TablesRequest, take func(int) error, visit func(*indexapi.Head, []byte) error) error {
	return f(ctx, request, take, visit)
}

func (fakeIndex) Search(context.Context, *indexapi.SearchRequest) (*indexapi.SearchAnswer, error) {
	return nil, errors.New("it is not asked to search")
}

func (fakeIndex) Count(context.Context, *indexapi.CountRequest) (*indexapi.CountAnswer, error) {
	return nil, errors.New("it is not asked to count")
}

// answerAll answers for each cluster with its name.
func answerAll(request *indexapi.TablesRequest, take func(int) error, visit func(*indexapi.Head, []byte) error) error {
	for _, cluster := range request.Clusters {
		if err := take(len(cluster.Name)); err != nil {
			return err
		}
		if err := visit(&indexapi.Head{Cluster: cluster.Name}, []byte(cluster.Name)); err != nil {
			return err
		}
	}
	return nil
}

func newLists(t *testing.T, index Index) *indexedLists {
	x := &indexedLists{index: index, begin: 2 * time.Second, held: fleet.NewMemory().Begin("ann")}
	x.ctx, x.cancel = context.WithCancel(t.Context())
	return x
}

// TestRightsByName wants a cluster to decide itself about a list of one name: the user may have the right to that name alone.
func TestRightsByName(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/pods": true,
		"/api/v1/pods?fieldSelector=metadata.name!%3Dweb": true,
		"/api/v1/pods?fieldSelector=metadata.name%3Dweb":  false,
	} {
		x := newLists(t, fakeIndex(func(_ context.Context, request *indexapi.TablesRequest, _ func(int) error, visit func(*indexapi.Head, []byte) error) error {
			return visit(&indexapi.Head{Cluster: request.Clusters[0].Name, Forbidden: "no right"}, nil)
		}))
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", kubectlsTable)
		info, err := apirequest.Resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := x.answer(r, info, "c1", "uid")
		if byIndex := answer != nil && answer.StatusCode == http.StatusForbidden; byIndex != want {
			t.Errorf("%s: the index refuses: %t, want %t", path, byIndex, want)
		}
		x.end()
	}
}

// TestQuestionsAreAskedTogether has more clusters asked for than one question may have, and of two lists.
func TestQuestionsAreAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		goOn := make(chan struct{})
		x := newLists(t, fakeIndex(func(_ context.Context, request *indexapi.TablesRequest, take func(int) error, visit func(*indexapi.Head, []byte) error) error {
			asked = append(asked, fmt.Sprintf("%s %d", request.Resource, len(request.Clusters)))
			<-goOn
			return answerAll(request, take, visit)
		}))
		var wait sync.WaitGroup
		for i := range 100 {
			wait.Go(func() {
				l := list{resource: feed.Resource{Resource: "pods"}}
				if i >= 80 {
					l.resource.Resource = "nodes"
				}
				name := fmt.Sprint("c", i)
				answer := x.ask(t.Context(), l, indexapi.Cluster{Name: name})
				if answer.head == nil || answer.head.Cluster != name || string(answer.table) != name {
					t.Errorf("%s is answered %+v", name, answer)
				}
				answer.release()
			})
			if i == 0 {
				synctest.Wait() // the first question is under way
			}
			if i == 79 {
				synctest.Wait() // the nodes come later
			}
		}
		synctest.Wait()
		close(goOn)
		wait.Wait()
		x.end()
		if diff := cmp.Diff([]string{"pods 1", "pods 64", "pods 15", "nodes 20"}, asked); diff != "" {
			t.Errorf("questions (-want +got):\n%s", diff)
		}
	})
}

// TestIndexThatFails wants the clusters asked from then on, and one Warning.
func TestIndexThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		index fakeIndex
		want  string
		// after is how long the clusters wait.
		after time.Duration
	}{
		"refuses": {func(context.Context, *indexapi.TablesRequest, func(int) error, func(*indexapi.Head, []byte) error) error {
			return &indexapi.Error{Code: 503, Message: "it starts"}
		}, indexSilent, 0},
		"silent": {func(ctx context.Context, _ *indexapi.TablesRequest, _ func(int) error, _ func(*indexapi.Head, []byte) error) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, indexSilent, 2 * time.Second},
		"stops after the first": {func(ctx context.Context, request *indexapi.TablesRequest, _ func(int) error, visit func(*indexapi.Head, []byte) error) error {
			if err := visit(&indexapi.Head{Cluster: request.Clusters[0].Name}, nil); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, indexSilent, 2 * time.Second},
		"sends too much": {func(_ context.Context, _ *indexapi.TablesRequest, take func(int) error, _ func(*indexapi.Head, []byte) error) error {
			return take(fleet.HeldByUser + 2*fleet.FreeHeld)
		}, indexTooLarge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newLists(t, test.index)
				began := time.Now()
				x.mu.Lock() // both are part of one question
				x.asking = true
				x.mu.Unlock()
				var wait sync.WaitGroup
				for _, name := range []string{"c1", "c2"} {
					wait.Go(func() {
						if answer := x.ask(t.Context(), list{}, indexapi.Cluster{Name: name}); answer.head != nil && test.after == 0 {
							t.Errorf("%s is answered %+v, want the cluster asked", name, answer)
						}
					})
				}
				synctest.Wait()
				x.running.Go(x.run)
				wait.Wait()
				if took := time.Since(began); took != test.after {
					t.Errorf("it took %v, want %v", took, test.after)
				}
				if answer := x.ask(t.Context(), list{}, indexapi.Cluster{Name: "c3"}); answer.head != nil {
					t.Errorf("the next one is answered %+v", answer)
				}
				x.end()
				if diff := cmp.Diff([]string{test.want}, x.warnings.all); diff != "" {
					t.Errorf("Warnings (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestAnswersThatNobodyWaitsFor ends a question when all of its clusters' requests have ended, and asks on.
func TestAnswersThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		memory := fleet.NewMemory()
		x := newLists(t, fakeIndex(func(ctx context.Context, request *indexapi.TablesRequest, take func(int) error, visit func(*indexapi.Head, []byte) error) error {
			if first {
				first = false
				if err := take(3 << 20); err != nil {
					return err
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return answerAll(request, take, visit)
		}))
		x.held = memory.Begin("ann")
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { x.ask(ctx, list{}, indexapi.Cluster{Name: "c1"}) })
		synctest.Wait()
		cancel()
		wait.Wait()
		synctest.Wait()
		answer := x.ask(t.Context(), list{}, indexapi.Cluster{Name: "c2"})
		if answer.head == nil || len(x.warnings.all) > 0 {
			t.Errorf("answered %+v with Warnings %q, want the index asked again and no Warning", answer, x.warnings.all)
		}
		answer.release()
		x.end()
		if memory.All != 0 {
			t.Errorf("%d bytes are held at the end", memory.All)
		}
	})
}

// TestWarningsOfManyClusters names ten and counts the rest, in the header and not behind it.
func TestWarningsOfManyClusters(t *testing.T) {
	var all warnings
	heard := time.Date(2026, 11, 29, 10, 2, 0, 0, time.UTC)
	x := &indexedLists{}
	for i := range 12 {
		x.note(&indexapi.Head{Cluster: fmt.Sprintf("edge-%02d", i), AsOf: heard, Remembered: i < 2})
	}
	x.note(&indexapi.Head{Cluster: "a", Incomplete: "it has more than 100000 objects\r\nX: y"})
	x.note(&indexapi.Head{Cluster: "fine"})
	x.warnings.once(indexSilent)
	all.once(indexSilent)
	all.once(indexSilent)
	recorder := httptest.NewRecorder()
	w := &warningWriter{ResponseWriter: recorder, warnings: &x.warnings}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	x.warnings.of("late", "is late")
	w.WriteHeader(http.StatusOK)
	got := recorder.Result().Header["Warning"]
	want := []string{`299 - "` + indexSilent + `"`, `299 - "cluster a is incomplete in the fleet index (it has more than 100000 objects  X: y)"`}
	for i := range 9 {
		want = append(want, fmt.Sprintf(`299 - "cluster edge-%02d was last heard at 2026-11-29T10:02:00Z; its objects are as of then"`, i))
	}
	want = append(want, `299 - "3 more clusters: their objects are as of when they were last heard, or incomplete"`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Warnings (-want +got):\n%s", diff)
	}
	if len(all.all) != 1 || x.remembered.String() != "edge-00,edge-01" || !slices.Contains(strings.Split(x.answered.String(), ","), "fine") {
		t.Errorf("%q, remembered %q, answered %q", all.all, &x.remembered, &x.answered)
	}
}
