package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// tableWatchers is how many of them watch at a time.
const tableWatchers = 50

// staleRows is how old the index's rows of a cluster are at most that answers (package fleetindexer). A list may lack what was
// made since.
const staleRows = 30 * time.Second

// tableWatcher lists the Services of a scenario as Tables and watches them, as a reflector does: it goes on from its
// last version when a watch ends, and lists again after 410.
type tableWatcher struct {
	name     string
	client   rest.Interface
	path     string
	clusters []string // whose objects its user sees

	mu   sync.Mutex
	held map[string]heldRow // by CLUSTER NAME
	// indexed counts its lists that the index answered.
	indexed int
	wrong   []string
	last    error
}

// heldRow is an object that a watcher knows of, and since when.
type heldRow struct {
	uid   types.UID
	since time.Time
}

// run lists and watches until ctx is done.
func (w *tableWatcher) run(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		var err error
		if version == "" {
			version, err = w.list(ctx)
		} else {
			version, err = w.watch(ctx, version)
		}
		if err == nil {
			continue
		}
		w.mu.Lock()
		w.last = err
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// list takes what is listed for all that there is, unless a Warning says that a cluster did not answer.
func (w *tableWatcher) list(ctx context.Context) (version string, _ error) {
	list, err := listTables(ctx, w.client, w.path, map[string]string{"labelSelector": fleetLabel})
	if err != nil {
		return "", err
	}
	if list.Refusal != "" {
		return "", errors.New(list.Refusal)
	}
	for _, warning := range list.Warnings {
		if strings.HasPrefix(warning, "cluster ") && !strings.Contains(warning, " refused (") {
			return "", fmt.Errorf("the list has the Warning %q", warning)
		}
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(list.Rows) > 0 && list.indexed() == nil {
		w.indexed++
	}
	before := w.held
	w.held = map[string]heldRow{}
	for i := range list.Rows {
		w.holdLocked(&list.Rows[i], before, now)
	}
	for key, row := range before {
		if _, ok := w.held[key]; !ok && isKept(key) && now.Sub(row.since) > staleRows {
			w.wrong = append(w.wrong, "a list lacks "+key)
		}
	}
	return list.version, nil
}

// holdLocked notes that an object is there.
func (w *tableWatcher) holdLocked(row *tableRow, before map[string]heldRow, now time.Time) {
	key := row.Cluster + " " + row.Name
	since := now
	if former, ok := before[key]; ok {
		since = former.since
	}
	w.held[key] = heldRow{row.UID, since}
}

// isKept reports whether an object is one that is never deleted.
func isKept(key string) bool { return strings.Contains(key, " keep-") }

// watch follows events from a version on, until the watch ends. The version that it returns is that of the last
// one, or empty if it is to list again.
func (w *tableWatcher) watch(ctx context.Context, version string) (string, error) {
	stream, err := w.client.Get().AbsPath(w.path).SetHeader("Accept", asTable).Param("watch", "true").
		Param("resourceVersion", version).Param("labelSelector", fleetLabel).Stream(ctx)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return "", err
	}
	if err != nil {
		return version, err
	}
	defer stream.Close()
	for decoder := json.NewDecoder(stream); ; {
		var event metav1.WatchEvent
		if err := decoder.Decode(&event); err != nil {
			return version, err
		}
		if watch.EventType(event.Type) == watch.Error {
			var status metav1.Status
			if err := json.Unmarshal(event.Object.Raw, &status); err != nil {
				return version, err
			}
			err := apierrors.FromObject(&status)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
			}
			return version, err
		}
		var table metav1.Table
		if err := json.Unmarshal(event.Object.Raw, &table); err != nil {
			return version, err
		}
		if err := w.take(watch.EventType(event.Type), &table); err != nil {
			return version, err
		}
		version = table.ResourceVersion
	}
}

// take takes an event.
func (w *tableWatcher) take(event watch.EventType, table *metav1.Table) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range table.Rows {
		r, _, err := rowOf(row)
		if err != nil {
			return err
		}
		switch key := r.Cluster + " " + r.Name; event {
		case watch.Added, watch.Modified:
			w.holdLocked(&r, w.held, time.Now())
		case watch.Deleted:
			if delete(w.held, key); isKept(key) {
				w.wrong = append(w.wrong, "a watch says that it was deleted: "+key)
			}
		default:
			return fmt.Errorf("the watch has an event %q", event)
		}
	}
	return nil
}

// holds returns an error unless the watcher knows of these objects of its clusters. If there may be more, it may know of more.
func (w *tableWatcher) holds(want map[string]map[string]types.UID, more bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, got := map[string]types.UID{}, map[string]types.UID{}
	for _, cluster := range w.clusters {
		maps.Copy(all, want[cluster])
	}
	for key, row := range w.held {
		if _, ok := all[key]; ok || !more {
			got[key] = row.uid
		}
	}
	if diff := cmp.Diff(all, got); diff != "" {
		return fmt.Errorf("%s, whose last error was: %v (-clusters +watch):\n%.2000s", w.name, w.last, diff)
	}
	return nil
}

// writeServices makes, changes and deletes Services of a cluster until ctx is done. Those with the prefix keep are never deleted.
func (f *fleet) writeServices(ctx context.Context, cs *kubernetes.Clientset) (rounds int, _ error) {
	services, background := cs.CoreV1().Services(f.ns), context.WithoutCancel(ctx)
	for ; ctx.Err() == nil; rounds++ {
		for _, name := range []string{fmt.Sprint("keep-", rounds), fmt.Sprint("drop-", rounds)} {
			made, err := services.Create(background, service(name), metav1.CreateOptions{})
			if err != nil {
				return rounds, err
			}
			made.Labels["step"] = "changed"
			if _, err := services.Update(background, made, metav1.UpdateOptions{}); err != nil {
				return rounds, err
			}
		}
		if rounds > 2 {
			if err := services.Delete(background, fmt.Sprint("drop-", rounds-3), metav1.DeleteOptions{}); err != nil {
				return rounds, err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return rounds, nil
}

// watchedServices are the Services that watchers see, by cluster.
func (f *fleet) watchedServices(ctx context.Context) (map[string]map[string]types.UID, error) {
	all := map[string]map[string]types.UID{}
	for _, cluster := range f.clusters {
		list, err := f.on[cluster].CoreV1().Services(f.ns).List(ctx, metav1.ListOptions{LabelSelector: fleetLabel})
		if err != nil {
			return nil, err
		}
		all[cluster] = map[string]types.UID{}
		for _, s := range list.Items {
			all[cluster][cluster+" "+s.Name] = s.UID
		}
	}
	return all, nil
}

// awaitMark makes a Service on each cluster, and waits until all watchers know of it.
func (f *fleet) awaitMark(t *testing.T, what string, watchers []*tableWatcher) {
	t.Helper()
	began := time.Now()
	mark := map[string]map[string]types.UID{}
	for _, cluster := range f.clusters {
		made, err := f.on[cluster].CoreV1().Services(f.ns).Create(t.Context(), service(fmt.Sprint("keep-mark-", began.UnixNano())), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mark[cluster] = map[string]types.UID{cluster + " " + made.Name: made.UID}
	}
	suite.Eventually(t, "new objects at all watchers "+what, func() error {
		for _, w := range watchers {
			if err := w.holds(mark, true); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%s, new objects are at all watchers after %s", what, time.Since(began).Round(time.Millisecond))
}

// startTableWatchers starts watchers of users who may list something, by each endpoint of the Indexed view, until ctx is done.
func (f *fleet) startTableWatchers(ctx context.Context, t *testing.T, users []tableUser, running *sync.WaitGroup) (watchers []*tableWatcher) {
	services := metav1.APIResource{Version: "v1", Name: "services"}
	for _, user := range users {
		path, clusters := pathOf(services, ""), user.all
		if len(clusters) == 0 {
			path, clusters = pathOf(services, f.ns), user.here
		}
		if len(clusters) == 0 {
			continue
		}
		for _, endpoint := range installed.ViewEndpoints("all", user.token) {
			client := tables(t, endpoint.Cfg)
			watchers = append(watchers, &tableWatcher{name: "the user " + user.name + " by " + endpoint.Name, client: client, path: path, clusters: clusters})
		}
	}
	for i := 0; len(watchers) < tableWatchers; i++ {
		like := watchers[i]
		watchers = append(watchers, &tableWatcher{name: like.name, client: like.client, path: like.path, clusters: like.clusters})
	}
	for _, w := range watchers {
		running.Go(func() { w.run(ctx) })
	}
	return watchers
}

// watchesLoseNothing kills the index, and then the proxy API, while users watch what is written on all clusters. At the end
// each knows of the objects that there are, and of no others, and none was told that an object is gone that is not. Watches
// go to the clusters, from the version of an indexed list.
func watchesLoseNothing(t *testing.T, f *fleet, users []tableUser) {
	ctx, stop := context.WithCancel(t.Context())
	var running, writers sync.WaitGroup
	writing, stopWriting := context.WithCancel(ctx)
	defer func() { stop(); writers.Wait(); running.Wait() }()
	for cluster, cs := range f.on {
		writers.Go(func() {
			rounds, err := f.writeServices(writing, cs)
			if err != nil {
				t.Errorf("writing on %s: %v", cluster, err)
			}
			t.Logf("%d rounds of writes on %s", rounds, cluster)
		})
	}
	watchers := f.startTableWatchers(ctx, t, users, &running)
	f.awaitMark(t, "at first", watchers)
	index := installed.FleetIndex()
	before, err := index.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range before {
		index.Kill(t, name)
	}
	f.awaitMark(t, "while the index is away", watchers)
	installed.AwaitOtherPods(t.Context(), t, index, before)
	client := tables(t, viewOf("all", installed.HubToken))
	suite.Eventually(t, "the index that was killed to answer again", func() error {
		list, err := listTables(t.Context(), client, watchers[0].path, nil)
		if err == nil {
			err = list.indexed()
		}
		return err
	})
	indexed := countLists(watchers)
	if indexed == 0 {
		t.Error("no watcher began with a list of the index")
	}
	installed.KillProxyAPI(t)
	f.awaitMark(t, "after the proxy API was killed", watchers)
	if countLists(watchers) == indexed {
		t.Error("no watcher has had a list of the index since the proxy API was killed")
	}
	stopWriting()
	writers.Wait()
	suite.Eventually(t, "all watchers to know of what the clusters have", func() error {
		want, err := f.watchedServices(t.Context())
		if err != nil {
			return err
		}
		for _, w := range watchers {
			if err := w.holds(want, false); err != nil {
				return err
			}
		}
		return nil
	})
	for _, w := range watchers {
		w.mu.Lock()
		if slices.Sort(w.wrong); len(w.wrong) > 0 {
			t.Errorf("%s: said to be gone, and are not: %q", w.name, w.wrong)
		}
		w.mu.Unlock()
	}
}

// countLists counts the lists of the index.
func countLists(watchers []*tableWatcher) (indexed int) {
	for _, w := range watchers {
		w.mu.Lock()
		indexed += w.indexed
		w.mu.Unlock()
	}
	return indexed
}
