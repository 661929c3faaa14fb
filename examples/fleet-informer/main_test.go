package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// fakeView serves pods as a view does: discovery, list and watch.
type fakeView struct {
	t *testing.T
	// noInitialEvents refuses watches that ask for the objects that there are.
	noInitialEvents bool

	mu      sync.Mutex
	version int
	pods    []*corev1.Pod
	events  []watch.Event
	more    chan struct{} // closed with each event
}

// start returns the configuration of a client. Its server is stopped with the test.
func (f *fakeView) start() *rest.Config {
	f.more = make(chan struct{})
	mux := http.NewServeMux()
	for path, object := range map[string]any{
		"/api":  metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/api/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}}},
	} {
		mux.HandleFunc("GET /view"+path, func(w http.ResponseWriter, _ *http.Request) { f.answer(w, 200, object) })
	}
	mux.HandleFunc("GET /view/api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		initial := r.URL.Query().Get("sendInitialEvents") == "true"
		switch {
		case r.URL.Query().Get("watch") == "":
			f.answer(w, 200, f.list())
		case initial && f.noInitialEvents:
			f.answer(w, 422, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid})
		default:
			f.watch(w, r, initial)
		}
	})
	server := httptest.NewServer(mux)
	f.t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL + "/view"}
}

func (f *fakeView) answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	f.encode(w, object)
}

func (f *fakeView) encode(w io.Writer, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		f.t.Logf("writing an answer: %v", err)
	}
}

func (f *fakeView) list() *corev1.PodList {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(f.version)}}
	for _, pod := range f.pods {
		list.Items = append(list.Items, *pod)
	}
	return list
}

// watch sends all events from the one after the request's version, or after the
// initial ones.
func (f *fakeView) watch(w http.ResponseWriter, r *http.Request, initial bool) {
	send := func(event watch.Event) {
		f.encode(w, map[string]any{"type": event.Type, "object": event.Object})
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	next := 0
	if initial {
		list := f.list()
		for _, pod := range list.Items {
			send(watch.Event{Type: watch.Added, Object: &pod})
		}
		bookmark := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
		bookmark.ResourceVersion, bookmark.Annotations = list.ResourceVersion, map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send(watch.Event{Type: watch.Bookmark, Object: bookmark})
		_, _ = fmt.Sscan(list.ResourceVersion, &next)
	} else if _, err := fmt.Sscan(r.URL.Query().Get("resourceVersion"), &next); err != nil {
		f.t.Errorf("watching from resourceVersion %q: %v", r.URL.Query().Get("resourceVersion"), err)
	}
	for {
		f.mu.Lock()
		events, more := f.events[next:], f.more
		next = len(f.events)
		f.mu.Unlock()
		for _, event := range events {
			send(event)
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// change makes a pod come or go.
func (f *fakeView) change(kind watch.EventType, name, cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(f.version), Annotations: map[string]string{annotationCluster: cluster}}}
	f.pods = slices.DeleteFunc(f.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if kind != watch.Deleted {
		f.pods = append(f.pods, pod)
	}
	f.events = append(f.events, watch.Event{Type: kind, Object: pod})
	close(f.more)
	f.more = make(chan struct{})
}

func TestCounts(t *testing.T) {
	for name, noInitialEvents := range map[string]bool{"watch with initial events": false, "list and watch": true} {
		t.Run(name, func(t *testing.T) {
			view := &fakeView{t: t, noInitialEvents: noInitialEvents}
			config := view.start()
			view.change(watch.Added, "web@c1", "c1")
			view.change(watch.Added, "db@c1", "c1")
			view.change(watch.Added, "web@c2", "c2")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			read, write := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- run(ctx, config, "", write)
				write.Close()
			}()
			lines := bufio.NewScanner(read)
			for _, step := range []struct {
				change func()
				want   string
			}{
				{func() {}, "3 pods: c1 2, c2 1"},
				{func() { view.change(watch.Added, "db@c2", "c2") }, "4 pods: c1 2, c2 2"},
				{func() { view.change(watch.Deleted, "web@c2", "c2") }, "3 pods: c1 2, c2 1"},
				{func() { view.change(watch.Modified, "web@c1", "c1"); view.change(watch.Deleted, "db@c2", "c2") }, "2 pods: c1 2"},
			} {
				step.change()
				if !lines.Scan() {
					t.Fatalf("the program ended before it printed %q: %v", step.want, <-ended)
				}
				if got := lines.Text(); got != step.want {
					t.Errorf("got %q, want %q", got, step.want)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("after it was stopped: %v", err)
			}
			if lines.Scan() {
				t.Errorf("got %q, want no more lines", lines.Text())
			}
		})
	}
}

func TestPlainNamesAreAnError(t *testing.T) {
	view := &fakeView{t: t}
	config := view.start()
	view.change(watch.Added, "web", "c1")
	if err := run(t.Context(), config, "", io.Discard); err == nil || !strings.Contains(err.Error(), "names: Qualified") {
		t.Errorf("got %v, want an error with %q", err, "names: Qualified")
	}
}

// TestStopsBeforeTheFirstAnswer stops the program while the view does not answer.
func TestStopsBeforeTheFirstAnswer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	view := &fakeView{t: t}
	config := view.start()
	watched := make(chan struct{})
	var once sync.Once
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/pods") {
				return next.RoundTrip(r)
			}
			once.Do(func() { close(watched) })
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
	})
	go func() {
		<-watched
		stop()
	}()
	if err := run(ctx, config, "", io.Discard); err != nil {
		t.Errorf("after it was stopped: %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
