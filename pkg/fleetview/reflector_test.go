package fleetview

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// replica is the one that requests go to. It can be killed: another one answers then, which
// knows nothing of what the former one has given out.
type replica struct {
	view fleet.View

	mu      sync.Mutex
	handler *Handler
	// ends end the requests that it answers, and gone says that nothing answers.
	ends map[*http.Request]context.CancelFunc
	gone bool
	// log has the requests.
	log []string
}

func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, end := context.WithCancel(request.Context())
	r.mu.Lock()
	h, gone := r.handler, r.gone
	r.log = append(r.log, time.Now().Format("04:05.000 ")+request.URL.RawQuery)
	r.ends[request] = end
	r.mu.Unlock()
	if gone {
		return nil, errors.New("connection reset by peer")
	}
	return roundTrip(func(w http.ResponseWriter, request *http.Request) { h.Serve(w, request, r.view) }, request.WithContext(ctx))
}

// kill ends all requests in the middle, and has another replica.
func (r *replica) kill(gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handler, r.gone = New(Options{}), gone
	for _, end := range r.ends {
		end()
	}
	clear(r.ends)
}

// objects is the store of a Reflector. It notes what it has lost.
type reflected struct {
	cache.Store
	mu   sync.Mutex
	lost []string
}

func (s *reflected) lose(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, key)
}

func (s *reflected) Delete(o any) error {
	if key, err := cache.MetaNamespaceKeyFunc(o); err == nil {
		s.lose(key)
	}
	return s.Store.Delete(o)
}

func (s *reflected) Replace(all []any, version string) error {
	before := s.ListKeys()
	err := s.Store.Replace(all, version)
	for _, key := range before {
		if !slices.Contains(s.ListKeys(), key) {
			s.lose(key)
		}
	}
	return err
}

// onlyLists is a ListWatch of a client that does not ask for initial events.
type onlyLists struct{ *cache.ListWatch }

func (onlyLists) IsWatchListSemanticsUnSupported() bool { return true }

// reflect runs a Reflector of client-go over a replica until the end of the bubble.
func reflect(t *testing.T, r *replica, lists bool, pageSize int64) (store *reflected, stop func()) {
	config := &rest.Config{Host: "http://view", Transport: r, QPS: -1}
	config.AcceptContentTypes, config.ContentType = request.ProtobufType+","+fleet.JSONType, fleet.JSONType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods("shop").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("shop").Watch(ctx, o)
		},
	}
	var source cache.ListerWatcher = listWatch
	if lists {
		source = onlyLists{listWatch}
	}
	store = &reflected{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	reflector := cache.NewReflectorWithOptions(source, &corev1.Pod{}, store, cache.ReflectorOptions{})
	reflector.WatchListPageSize = pageSize
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	return store, func() {
		cancel()
		r.kill(true)
		<-done
	}
}

// TestReflectorsLoseNothing has Reflectors of client-go that must list again, for several reasons,
// while a cluster is away. None of them is told that an object is gone that is not.
func TestReflectorsLoseNothing(t *testing.T) {
	// One of them sleeps, until a time of the bubble before.
	before := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = before }()
	modes := map[string]struct {
		lists    bool
		pageSize int64
	}{"initial events": {false, 0}, "lists": {true, 0}, "pages": {true, 1}}
	reasons := map[string]func(*replica){
		"a replica is killed": func(r *replica) { r.kill(false) },
		"all replicas, one after the other": func(r *replica) {
			for range 3 {
				r.kill(false)
				time.Sleep(5 * time.Second)
			}
		},
		"nothing answers for longer than versions are known": func(r *replica) {
			r.kill(true)
			time.Sleep(6 * time.Minute)
			r.kill(false)
		},
		"the former replica's clock was ahead": func(r *replica) {
			r.handler.clock.After(time.Now().Add(time.Hour).UnixMicro())
			time.Sleep(time.Minute)
			r.kill(false)
		},
	}
	faults := map[string]func(http.ResponseWriter, *http.Request) bool{"no tunnel": away, "frozen": silent, "it is starting": refusing(503)}
	for mode, how := range modes {
		for reason, listAgain := range reasons {
			for name, fault := range faults {
				t.Run(mode+", "+reason+", "+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						a, b := newCluster("a", pods(2)...), newCluster("b", pods(2)...)
						r := &replica{view: forInformers(a, b), handler: New(Options{}), ends: map[*http.Request]context.CancelFunc{}}
						r.view.Qualified = true
						store, stop := reflect(t, r, how.lists, how.pageSize)
						defer stop()
						time.Sleep(time.Second)
						want := []string{"shop/web-0000@a", "shop/web-0000@b", "shop/web-0001@a", "shop/web-0001@b"}
						if diff := cmp.Diff(want, slices.Sorted(slices.Values(store.ListKeys()))); diff != "" {
							t.Fatalf("at first (-want +got):\n%s", diff)
						}
						b.failing(fault)
						listAgain(r)
						a.set(shop+"/new", nil)
						time.Sleep(20 * time.Second)
						b.failing(nil)
						b.set(shop+"/new", nil)
						time.Sleep(time.Minute)
						want = append([]string{"shop/new@a", "shop/new@b"}, want...)
						if diff := cmp.Diff(want, slices.Sorted(slices.Values(store.ListKeys()))); diff != "" {
							t.Errorf("at the end, %s, after requests %q (-want +got):\n%s", time.Now().Format("04:05"), r.log, diff)
						}
						store.mu.Lock()
						defer store.mu.Unlock()
						if len(store.lost) > 0 {
							t.Errorf("the client was told that these are gone: %q", store.lost)
						}
					})
				})
			}
		}
	}
}
