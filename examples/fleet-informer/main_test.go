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

	mu sync.Mutex
	// missing is a cluster whose objects are not among the initial events.
	missing string
	// oldest is the oldest version that can be watched from, and ended is closed to end all watches.
	oldest  int
	ended   chan struct{}
	version int
	pods    []*corev1.Pod
	events  []watch.Event
	more    chan struct{} // closed with each event
}

// start returns the configuration of a client. Its server is stopped with the test.
func (f *fakeView) start() *rest.Config {
	f.more, f.ended = make(chan struct{}), make(chan struct{})
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
		if r.URL.Query().Get("watch") == "" {
			f.t.Errorf("%s: the program lists, which does not say what is missing", r.URL)
		}
		f.watch(w, r, r.URL.Query().Get("sendInitialEvents") == "true")
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

// initial are the initial events.
func (f *fakeView) initial() (events []watch.Event, version int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pod := range f.pods {
		if pod.Annotations[annotationCluster] != f.missing {
			events = append(events, watch.Event{Type: watch.Added, Object: pod})
		}
	}
	end := f.bookmark()
	end.Annotations[metav1.InitialEventsAnnotationKey] = "true"
	return append(events, watch.Event{Type: watch.Bookmark, Object: end}), f.version
}

// bookmark says whose objects are missing. The caller holds mu.
func (f *fakeView) bookmark() *corev1.Pod {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	pod.ResourceVersion, pod.Annotations = fmt.Sprint(f.version), map[string]string{}
	if f.missing != "" {
		pod.Annotations[annotationMissing] = f.missing
	}
	return pod
}

// loses makes all clients ask again for everything, while a cluster is missing.
func (f *fakeView) loses(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = cluster
	f.version++
	f.events = append(f.events, watch.Event{Type: watch.Bookmark, Object: f.bookmark()})
	f.oldest = f.version
	close(f.ended)
	f.ended = make(chan struct{})
}

// finds has a cluster back with what it has now, which is said by a bookmark.
func (f *fakeView) finds(cluster string, lost ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = ""
	f.pods = slices.DeleteFunc(f.pods, func(p *corev1.Pod) bool { return slices.Contains(lost, p.Name) })
	for _, pod := range f.pods {
		if pod.Annotations[annotationCluster] == cluster {
			f.version++
			f.events = append(f.events, watch.Event{Type: watch.Added, Object: pod})
		}
	}
	f.version++
	f.events = append(f.events, watch.Event{Type: watch.Bookmark, Object: f.bookmark()})
	close(f.more)
	f.more = make(chan struct{})
}

// watch sends all events from the one after the request's version, or after the
// initial ones.
func (f *fakeView) watch(w http.ResponseWriter, r *http.Request, initial bool) {
	send := func(event watch.Event) {
		f.encode(w, map[string]any{"type": event.Type, "object": event.Object})
		_ = http.NewResponseController(w).Flush()
	}
	next := 0
	var events []watch.Event
	if initial {
		events, next = f.initial()
	} else if _, err := fmt.Sscan(r.URL.Query().Get("resourceVersion"), &next); err != nil {
		f.t.Errorf("watching from resourceVersion %q: %v", r.URL.Query().Get("resourceVersion"), err)
	}
	f.mu.Lock()
	expired, ended := next < f.oldest, f.ended
	f.mu.Unlock()
	if expired {
		f.answer(w, http.StatusGone, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		for _, event := range events {
			send(event)
		}
		f.mu.Lock()
		more := f.more
		events, next = f.events[next:], len(f.events)
		f.mu.Unlock()
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ended:
			return
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

// program runs the program until the test ends. next returns the next line that it prints.
func program(t *testing.T, config *rest.Config) (next func(want string), stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, config, "", write)
		write.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(read)
	next = func(want string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the program ended before it printed %q: %v", want, <-ended)
		}
		if got := lines.Text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	return next, func() {
		t.Helper()
		cancel()
		for lines.Scan() {
			t.Errorf("got %q, want no more lines", lines.Text())
		}
		if err := <-ended; err != nil {
			t.Errorf("after it was stopped: %v", err)
		}
	}
}

func TestCounts(t *testing.T) {
	view := &fakeView{t: t}
	config := view.start()
	view.change(watch.Added, "web@c1", "c1")
	view.change(watch.Added, "db@c1", "c1")
	view.change(watch.Added, "web@c2", "c2")
	next, stop := program(t, config)
	next("3 pods: c1 2, c2 1")
	view.change(watch.Added, "db@c2", "c2")
	next("4 pods: c1 2, c2 2")
	view.change(watch.Deleted, "web@c2", "c2")
	next("3 pods: c1 2, c2 1")
	view.change(watch.Modified, "web@c1", "c1")
	view.change(watch.Deleted, "db@c2", "c2")
	next("2 pods: c1 2")
	stop()
}

// TestKeepsWhatIsAway has a view that forgets everything while a cluster is away, twice. The pods of
// the cluster are counted until it is known which of them are gone.
func TestKeepsWhatIsAway(t *testing.T) {
	view := &fakeView{t: t}
	config := view.start()
	for _, name := range []string{"web@c1", "web@c2", "db@c2", "old@c2"} {
		view.change(watch.Added, name, name[len(name)-2:])
	}
	next, stop := program(t, config)
	next("4 pods: c1 1, c2 3")
	for i := range 2 {
		view.loses("c2")
		view.change(watch.Added, fmt.Sprintf("new%d@c1", i), "c1")
		next(fmt.Sprintf("%d pods: c1 %d, c2 3", 5+i, 2+i))
	}
	view.finds("c2", "old@c2")
	next("5 pods: c1 3, c2 2")
	view.change(watch.Deleted, "db@c2", "c2")
	next("4 pods: c1 3, c2 1")
	stop()
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
