//go:build benchfleet

package fleet

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// following are watches of one measurement.
type following struct {
	// run marks the changes of this measurement.
	run            string
	arrived, ended atomic.Int64

	mu   sync.Mutex
	lags []float64
	all  sync.WaitGroup
}

// follow opens a watch and returns when the client has the objects of its beginning.
func (f *following) follow(ctx context.Context, p place, path string, initial int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path+"?watch=1", nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fmt.Errorf("%s answered %s", path, resp.Status)
	}
	ready := make(chan error, 1)
	f.all.Go(func() {
		defer resp.Body.Close()
		err := f.read(ctx, resp, initial, ready)
		if ctx.Err() == nil {
			f.ended.Add(1)
		}
		select {
		case ready <- fmt.Errorf("reading the beginning of a watch: %w", err):
		default:
		}
	})
	return <-ready
}

// read notes how long each change took to arrive.
func (f *following) read(ctx context.Context, resp *http.Response, initial int, ready chan<- error) error {
	var mine []float64
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lags = append(f.lags, mine...)
	}()
	marker := []byte(`"` + sentAt + `":"` + f.run + `-`)
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for n := 1; ctx.Err() == nil; n++ {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		now := time.Now()
		if n == initial {
			ready <- nil
		}
		if _, rest, found := bytes.Cut(line, marker); found {
			text, _, _ := bytes.Cut(rest, []byte(`"`))
			sent, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				return err
			}
			mine = append(mine, float64(now.UnixNano()-sent)/1e6)
			f.arrived.Add(1)
		}
	}
	return ctx.Err()
}

// change changes pods of clusters in turns, 20 times a second, without the addon.
func (f *following) change(t *testing.T, clusters []string, changes int) {
	t.Helper()
	tick := time.NewTicker(time.Second / 20)
	defer tick.Stop()
	var writers []*kubernetes.Clientset
	for _, cluster := range clusters {
		writers = append(writers, suite.Clientset(t, load.Installed.Direct(cluster)))
	}
	var all sync.WaitGroup
	for n := range changes {
		<-tick.C
		all.Go(func() {
			i := n % len(clusters)
			pod := benchPod(clusters[i], n/len(clusters)%watchedEach)
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s-%d"}}}`, sentAt, f.run, time.Now().UnixNano())
			if _, err := writers[i].CoreV1().Pods(watchedNamespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// runs tells the changes of one measurement from those of others.
var runs atomic.Int64

// opened is a watch to open.
type opened struct {
	place
	initial int
}

// lags measures watches while pods of clusters change. Each of users gets every change
// once, by whichever of their watches. It returns how many watches were ended.
func lags(t *testing.T, watches []opened, users int, clusters []string, changes int) (took []float64, ended int) {
	t.Helper()
	f := &following{run: fmt.Sprint("run", runs.Add(1))}
	ctx, cancel := context.WithCancel(t.Context())
	for _, w := range watches {
		if err := f.follow(ctx, w.place, watchedPath, w.initial); err != nil {
			t.Errorf("%s: %v", w.base, err)
		}
	}
	f.change(t, clusters, changes)
	want := int64(changes * users)
	for limit := time.Now().Add(15 * time.Second); f.arrived.Load() < want && time.Now().Before(limit); {
		<-time.After(10 * time.Millisecond)
	}
	cut := int(f.ended.Load())
	cancel()
	f.all.Wait()
	if got := f.arrived.Load(); got != want {
		t.Errorf("%d changes arrived, want %d; %d watches were ended", got, want, cut)
	}
	slices.Sort(f.lags)
	return f.lags, cut
}

// measureEvent compares one quiet watch of a view with one of the single-cluster endpoint.
func measureEvent(t *testing.T, results *fleetResults) {
	makePods(t, watchedNamespace, watchedEach)
	cluster := benchClusters()[0]
	single := load.Installed.ThroughProxyAPI(cluster)
	single.BearerToken = load.Installed.HubToken
	for round := range load.Rounds {
		for _, side := range sides(round) {
			w := opened{newPlace(t, single), watchedEach}
			if side == ofView {
				w = opened{newPlace(t, viewEndpoint().Cfg), watchedEach * len(benchClusters())}
			}
			t.Logf("event, %s (%d of %d)", w.base, round+1, load.Rounds)
			took, _ := lags(t, []opened{w}, 1, []string{cluster}, 100)
			results.add(eventLag, side, load.Median(took))
		}
	}
}

// measureWatches compares 50 users who watch a view with 50 who watch each cluster.
func measureWatches(t *testing.T, results *fleetResults) {
	const users, changes = 50, 160
	makePods(t, watchedNamespace, watchedEach)
	clusters := benchClusters()
	tokens := benchUsers(t, 5)
	for round := range load.Rounds {
		for _, side := range sides(round) {
			t.Logf("50 watches, %s (%d of %d)", side, round+1, load.Rounds)
			var watches []opened
			for i := range users {
				if side == ofView {
					cfg := viewEndpoint().Cfg
					cfg.BearerToken = tokens[i%len(tokens)]
					watches = append(watches, opened{newPlace(t, cfg), watchedEach * len(clusters)})
					continue
				}
				for _, p := range directPlaces(t) {
					watches = append(watches, opened{p, watchedEach})
				}
			}
			took, cut := lags(t, watches, users, clusters, changes)
			results.add(watchesCut, side, float64(cut))
			if len(took) > 0 {
				results.add(watchesP50, side, took[len(took)/2])
				results.add(watchesP99, side, took[len(took)*99/100])
			}
		}
	}
}

// benchUsers makes users of the hub who may do everything on its clusters, and returns
// their tokens: the views that one user may ask for at a time are limited.
func benchUsers(t *testing.T, count int) (tokens []string) {
	t.Helper()
	bind := func(cs *kubernetes.Clientset, role, group string) {
		_, err := cs.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "bench-fleet-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "Group", Name: group, APIGroup: rbacv1.GroupName}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	bind(load.Installed.Hub, "cluster-proxy-user", "system:serviceaccounts:default")
	for _, cluster := range benchClusters() {
		bind(suite.Clientset(t, load.Installed.Direct(cluster)), "cluster-admin", suite.HubUserGroups)
	}
	accounts := load.Installed.Hub.CoreV1().ServiceAccounts("default")
	for i := range count {
		name := fmt.Sprint("bench-fleet-", i)
		if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token.Status.Token)
		cfg := viewEndpoint().Cfg
		cfg.BearerToken = token.Status.Token
		p := newPlace(t, cfg)
		suite.Eventually(t, name+" sees all pods", func() error {
			got, err := p.list(t.Context(), watchedPath, listForms()[0])
			if want := watchedEach * len(benchClusters()); err == nil && got.items != want {
				err = fmt.Errorf("got %d pods and warnings %q, want %d", got.items, got.warnings, want)
			}
			return err
		})
	}
	return tokens
}

// measureInformer compares an informer of a view with one of each cluster.
func measureInformer(t *testing.T, results *fleetResults) {
	makePods(t, benchNamespace, podsEach)
	want := podsEach * len(benchClusters())
	for round := range load.Rounds {
		for _, side := range sides(round) {
			t.Logf("informer, %s (%d of %d)", side, round+1, load.Rounds)
			cfgs := []*rest.Config{viewEndpoint().Cfg}
			if side == direct {
				cfgs = nil
				for _, cluster := range benchClusters() {
					cfgs = append(cfgs, load.Installed.Direct(cluster))
				}
			}
			cpuBefore, _ := load.Used(t)
			took, held := inform(t, cfgs)
			cpuAfter, _ := load.Used(t)
			if held != want {
				t.Errorf("informers of %s hold %d pods, want %d", side, held, want)
			}
			results.add(informerSynced, side, took.Seconds())
			results.add(informerHeld, side, float64(held))
			if side == ofView {
				results.add(informerCPU, side, cpuAfter-cpuBefore)
			}
		}
	}
}

// inform starts an informer of pods at each of the places, and returns when all have
// synced, or have not for two minutes.
func inform(t *testing.T, cfgs []*rest.Config) (took time.Duration, held int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	limit := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var factories []informers.SharedInformerFactory
	for _, cfg := range cfgs {
		f := informers.NewSharedInformerFactoryWithOptions(suite.Clientset(t, cfg), 0, informers.WithNamespace(benchNamespace))
		f.Core().V1().Pods().Informer()
		factories = append(factories, f)
	}
	began := time.Now()
	for _, f := range factories {
		f.Start(ctx.Done())
	}
	for _, f := range factories {
		for pods := f.Core().V1().Pods().Informer(); !pods.HasSynced(); {
			select {
			case <-tick.C:
			case <-limit:
				t.Error("an informer has not synced within two minutes")
				return time.Since(began), held
			}
		}
	}
	took = time.Since(began)
	for _, f := range factories {
		held += len(f.Core().V1().Pods().Informer().GetStore().ListKeys())
	}
	cancel()
	for _, f := range factories {
		f.Shutdown()
	}
	return took, held
}
