package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// qualifiedView has the names NAME@CLUSTER, for informers.
const qualifiedView = "e2e-qualified"

// followMaps watches the ConfigMaps of a scenario until the test ends.
func (f *fleet) followMaps(t *testing.T, cfg *rest.Config, version string) watch.Interface {
	t.Helper()
	w, err := suite.Clientset(t, cfg).CoreV1().ConfigMaps(f.ns).Watch(t.Context(), metav1.ListOptions{LabelSelector: fleetLabel, ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next returns the next event as text, and the version of its object.
func next(t *testing.T, w watch.Interface) (event, version string) {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		m, isMap := e.Object.(*corev1.ConfigMap)
		if !ok || !isMap {
			t.Fatalf("the watch ends with %v %v, want an event", e.Type, e.Object)
		}
		return fmt.Sprintf("%s %s@%s %s", e.Type, m.Name, clusterOf(m), m.Data["step"]), m.ResourceVersion
	case <-time.After(suite.Timeout):
		t.Fatalf("no event in %s", suite.Timeout)
	}
	return "", ""
}

// wantEvents wants these events next, in any order.
func wantEvents(t *testing.T, what string, w watch.Interface, want ...string) {
	t.Helper()
	var got []string
	for range want {
		event, _ := next(t, w)
		got = append(got, strings.TrimSpace(event))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// counted counts requests of a client by what they do, and those that were answered 410.
type counted struct {
	mu    sync.Mutex
	kinds map[string]int
	gone  int
}

// countRequests makes a client count its requests for ConfigMaps.
func countRequests(cfg *rest.Config) *counted {
	c := &counted{kinds: map[string]int{}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			query := r.URL.Query()
			kind := "list"
			if query.Has("watch") {
				kind = "watch"
			}
			if query.Get("sendInitialEvents") == "true" {
				kind = "watch-list"
			}
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				c.mu.Lock()
				c.kinds[kind]++
				c.mu.Unlock()
			}
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusGone {
				c.mu.Lock()
				c.gone++
				c.mu.Unlock()
			}
			return response, err
		})
	})
	return c
}

func (c *counted) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.kinds)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stored are the objects of an informer, or of the clusters, by their name in the view.
type stored map[string]string

// informer starts one over a view with qualified names, which ends with the test.
// gone is called with the key of each object that it says was deleted.
func (f *fleet) informer(t *testing.T, cfg *rest.Config, gone func(key string)) cache.SharedIndexInformer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactoryWithOptions(suite.Clientset(t, cfg), 0, informers.WithNamespace(f.ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = fleetLabel }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			gone(key)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	waiting, stop := context.WithTimeout(t.Context(), suite.Timeout)
	defer stop()
	if !cache.WaitForCacheSync(waiting.Done(), informer.HasSynced) {
		t.Fatalf("the informer has not synced in %s", suite.Timeout)
	}
	return informer
}

// inStore is what an informer holds.
func inStore(informer cache.SharedIndexInformer) stored {
	all := stored{}
	for _, o := range informer.GetStore().List() {
		m := o.(*corev1.ConfigMap)
		all[m.Name] = fmt.Sprint(m.UID, m.Data)
	}
	return all
}

// inClusters is what the clusters hold.
func (f *fleet) inClusters(ctx context.Context) (stored, error) {
	all := stored{}
	for _, cluster := range f.clusters {
		list, err := f.on[cluster].CoreV1().ConfigMaps(f.ns).List(ctx, metav1.ListOptions{LabelSelector: fleetLabel})
		if err != nil {
			return nil, err
		}
		for _, m := range list.Items {
			all[m.Name+"@"+cluster] = fmt.Sprint(m.UID, m.Data)
		}
	}
	return all, nil
}

// awaitEqual waits until an informer holds what the clusters do.
func (f *fleet) awaitEqual(t *testing.T, informer cache.SharedIndexInformer) {
	t.Helper()
	suite.Eventually(t, "the informer to hold what the clusters do", func() error {
		want, err := f.inClusters(t.Context())
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, inStore(informer)); diff != "" {
			return fmt.Errorf("(-clusters +informer):\n%s", diff)
		}
		return nil
	})
}

// write makes, changes and deletes objects of a cluster, one after the other, until ctx is
// done. Objects with the prefix keep are never deleted.
func (f *fleet) write(ctx context.Context, cs *kubernetes.Clientset, cluster string) (written int, _ error) {
	maps := cs.CoreV1().ConfigMaps(f.ns)
	background := context.WithoutCancel(ctx)
	for ; ctx.Err() == nil; written++ {
		for _, name := range []string{fmt.Sprint("keep-", written), fmt.Sprint("drop-", written)} {
			m, err := maps.Create(background, configMap(cluster, name), metav1.CreateOptions{})
			if err != nil {
				return written, err
			}
			m.Data["step"] = "changed"
			if _, err := maps.Update(background, m, metav1.UpdateOptions{}); err != nil {
				return written, err
			}
		}
		if written > 2 {
			if err := maps.Delete(background, fmt.Sprint("drop-", written-3), metav1.DeleteOptions{}); err != nil {
				return written, err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return written, nil
}

// rollingRestarts is how many of them TestFleetInformerOverRestarts makes.
var rollingRestarts = max(1, atoi(os.Getenv("E2E_RESTARTS")))

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// TestFleetInformerOverRestarts replaces two replicas of the proxy API, and kills them, while
// informers follow writes on all clusters. None of them has to list again after a rolling
// restart. At the end they hold what the clusters do, and they were never told that an
// object is gone that is not. It disturbs all users of the proxy API, which restarts.
func TestFleetInformerOverRestarts(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	f := newFleet(t)
	installed.MakeView(t, qualifiedView, map[string]any{"names": "Qualified"})
	installed.ScaleProxyAPI(t, 2)
	type following struct {
		name     string
		asked    *counted
		informer cache.SharedIndexInformer
	}
	var followers []following
	var mu sync.Mutex
	wrong := map[string]bool{}
	for _, endpoint := range installed.ViewEndpoints(qualifiedView, installed.HubToken) {
		asked := countRequests(endpoint.Cfg)
		followers = append(followers, following{endpoint.Name, asked, f.informer(t, endpoint.Cfg, func(key string) {
			if strings.Contains(key, "/keep-") {
				mu.Lock()
				wrong[endpoint.Name+" "+key] = true
				mu.Unlock()
			}
		})})
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer func() { stop(); writers.Wait() }()
	for cluster, cs := range f.on {
		writers.Go(func() {
			written, err := f.write(ctx, cs, cluster)
			if err != nil {
				t.Errorf("writing on %s: %v", cluster, err)
			}
			t.Logf("%d rounds of writes on %s", written, cluster)
		})
	}
	for round := range rollingRestarts {
		installed.RestartProxyAPI(t)
		for _, follower := range followers {
			f.awaitWrites(t, fmt.Sprintf("%s after rolling restart %d", follower.name, round), follower.informer)
			t.Logf("%s after rolling restart %d: the informer has asked %s", follower.name, round, follower.asked)
			follower.asked.mu.Lock()
			if follower.asked.gone > 0 {
				t.Errorf("%s after rolling restart %d: %d watches were answered 410", follower.name, round, follower.asked.gone)
			}
			follower.asked.gone = 0
			follower.asked.mu.Unlock()
		}
	}
	installed.KillProxyAPI(t)
	for _, follower := range followers {
		f.awaitWrites(t, follower.name+" after the proxy API was killed", follower.informer)
	}
	stop()
	writers.Wait()
	for _, follower := range followers {
		f.awaitEqual(t, follower.informer)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(wrong) > 0 {
		t.Errorf("said to be deleted, and are not: %q", slices.Sorted(maps.Keys(wrong)))
	}
}

// awaitWrites waits until an informer holds an object of each cluster that is made now.
func (f *fleet) awaitWrites(t *testing.T, what string, informer cache.SharedIndexInformer) {
	t.Helper()
	mark := fmt.Sprint("keep-mark-", time.Now().UnixNano())
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, mark)
	}
	suite.Eventually(t, "new objects at "+what, func() error {
		for _, cluster := range f.clusters {
			if _, ok, err := informer.GetStore().GetByKey(f.ns + "/" + mark + "@" + cluster); !ok || err != nil {
				return fmt.Errorf("that of %s is not there: %v", cluster, err)
			}
		}
		return nil
	})
}
