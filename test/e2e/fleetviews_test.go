package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// warnings are the Warning headers that a client has got.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// ofClusters are the warnings of clusters. That objects of several clusters have one name is
// another one, of views with plain names.
func (w *warnings) ofClusters() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.all), func(text string) bool { return strings.Contains(text, collision) })
}

// collision is in the warning of names that several clusters have.
const collision = "have one name"

// listMaps lists the ConfigMaps of a scenario through a view, as CLUSTER NAME, with the
// warnings.
func (f *fleet) listMaps(ctx context.Context, t *testing.T, cfg *rest.Config) ([]string, []string, error) {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	seen := &warnings{}
	cfg.WarningHandler = seen
	list, err := suite.Clientset(t, cfg).CoreV1().ConfigMaps(f.ns).List(ctx, metav1.ListOptions{LabelSelector: fleetLabel})
	if err != nil {
		return nil, seen.ofClusters(), err
	}
	all := []string{}
	for _, m := range list.Items {
		all = append(all, clusterOf(&m)+" "+m.Name)
	}
	return all, seen.ofClusters(), nil
}

// awaitMaps waits until a view lists what is wanted, and warns of the clusters that are
// missing and of no other.
func (f *fleet) awaitMaps(t *testing.T, what string, cfg *rest.Config, want []string, missing ...string) {
	t.Helper()
	suite.Eventually(t, what, func() error {
		got, warned, err := f.listMaps(t.Context(), t, cfg)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) || len(warned) != len(missing) {
			return fmt.Errorf("listed %q with warnings %q, want %q and a warning of each of %q", got, warned, want, missing)
		}
		for i, cluster := range missing {
			if !strings.Contains(warned[i], cluster) {
				return fmt.Errorf("warning %q is not of %q", warned[i], cluster)
			}
		}
		return nil
	})
}

// followAll watches by each endpoint, when that lists all that there is: ConfigMap m on each cluster.
func (f *fleet) followAll(t *testing.T, endpoints []suite.Endpoint, all []string) (watches []watch.Interface) {
	t.Helper()
	for _, endpoint := range endpoints {
		f.awaitMaps(t, "all objects at "+endpoint.Name, endpoint.Cfg, all)
		w := f.followMaps(t, endpoint.Cfg, "")
		var want []string
		for _, cluster := range f.clusters {
			want = append(want, "ADDED m@"+cluster)
		}
		wantEvents(t, "objects at "+endpoint.Name, w, want...)
		watches = append(watches, w)
	}
	return watches
}

// TestFleetFrozenAgent freezes the agents of one cluster, which is what an overloaded
// machine and a broken network look like. The others' objects come within the view's
// timeout, with a warning; then everything is there again. It disturbs one cluster, whose
// agents stop for a while.
func TestFleetFrozenAgent(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "stops the processes of agents")
	if onNodes {
		t.Skip("a kubelet would start the agents again: make test")
	}
	f := newFleet(t)
	frozen, other := f.clusters[0], f.clusters[1:]
	var all, others []string
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
		all = append(all, cluster+" m")
		if cluster != frozen {
			others = append(others, cluster+" m")
		}
	}
	const view, strict = "e2e-patient", "e2e-strict"
	timeout := 2 * time.Second
	installed.MakeView(t, view, map[string]any{"clusterTimeoutSeconds": int64(timeout / time.Second)})
	installed.MakeView(t, strict, map[string]any{"clusterTimeoutSeconds": int64(timeout / time.Second), "whenUnreachable": "Fail"})
	endpoints := installed.ViewEndpoints(view, installed.HubToken)
	watches := f.followAll(t, endpoints, all)
	thaw := installed.FreezeAgents(t, frozen)
	for i, endpoint := range endpoints {
		for range 2 {
			began := time.Now()
			got, warned, err := f.listMaps(t.Context(), t, endpoint.Cfg)
			took := time.Since(began)
			t.Logf("%s: listed in %v with warnings %q", endpoint.Name, took.Round(time.Millisecond), warned)
			if err != nil || !slices.Equal(got, others) || len(warned) != 1 || !strings.Contains(warned[0], frozen) {
				t.Errorf("%s: got %q with warnings %q, %v; want %q and a warning of %q", endpoint.Name, got, warned, err, others, frozen)
			}
			if took > 5*timeout { // a machine that is busy may take a while
				t.Errorf("%s: the list took %v, and the view's timeout is %v", endpoint.Name, took, timeout)
			}
		}
		cs := suite.Clientset(t, endpoint.Cfg).CoreV1().ConfigMaps(f.ns)
		for _, name := range []string{"none", "m@" + frozen} {
			if _, err := cs.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err) {
				t.Errorf("%s: get %s: %v, want 503: whether it is there is not known", endpoint.Name, name, err)
			}
		}
		_, _, err := f.listMaps(t.Context(), t, installed.ViewEndpoints(strict, installed.HubToken)[i].Cfg)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), frozen) {
			t.Errorf("%s: a view that fails when a cluster is unreachable: %v, want 503 that names %q", endpoint.Name, err, frozen)
		}
	}
	for _, cluster := range other {
		f.patchMap(t, cluster, "m", `{"data":{"step":"meanwhile"}}`)
		for i, w := range watches {
			wantEvents(t, "others' events at "+endpoints[i].Name, w, "MODIFIED m@"+cluster+" meanwhile")
		}
	}
	f.patchMap(t, frozen, "m", `{"data":{"step":"frozen"}}`)
	thaw()
	for i, endpoint := range endpoints {
		f.awaitMaps(t, "all objects again at "+endpoint.Name, endpoint.Cfg, all)
		wantEvents(t, "its events afterwards at "+endpoint.Name, watches[i], "MODIFIED m@"+frozen+" frozen")
	}
}

// labelCluster sets a label of a ManagedCluster, or takes it away, until the test ends.
func labelCluster(t *testing.T, cluster, key string, value any) {
	t.Helper()
	patch := func(ctx context.Context, value any) error {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
		if err != nil {
			return err
		}
		_, err = installed.ManagedClusters.Patch(ctx, cluster, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() { _ = patch(context.Background(), nil) })
	if err := patch(t.Context(), value); err != nil {
		t.Fatal(err)
	}
}

// TestFleetRightTakenAway takes from jane the right to one cluster while she watches. Its
// objects leave her watch, as if they were deleted; when she has it again, they come back.
// It disturbs nothing.
func TestFleetRightTakenAway(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	f := newFleet(t)
	const jane = "e2e-fleet-jane"
	lost := f.clusters[0]
	var all, rest []string
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
		all = append(all, cluster+" m")
		if cluster != lost {
			rest = append(rest, cluster+" m")
		}
	}
	rules := func(clusters ...string) []rbacv1.PolicyRule {
		return append(suite.MayUseViews(), suite.MayReach(suite.ReadVerbs, clusters...))
	}
	token := installed.MakeUser(t, jane, rules(f.clusters...)...)
	for _, cluster := range f.clusters {
		installed.MayOn(t, cluster, jane, suite.Rule("", "configmaps", suite.ReadVerbs))
	}
	setRights := func(clusters ...string) {
		t.Helper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: jane}, Rules: rules(clusters...)}
		if _, err := installed.Hub.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	endpoints := installed.ViewEndpoints(allView, token)
	watches := f.followAll(t, endpoints, all)
	setRights(f.clusters[1:]...)
	began := time.Now()
	for i, w := range watches {
		wantEvents(t, "a right is taken away at "+endpoints[i].Name, w, "DELETED m@"+lost)
		t.Logf("%s: its objects have left the watch after %v", endpoints[i].Name, time.Since(began).Round(100*time.Millisecond))
		f.awaitMaps(t, "the others' objects at "+endpoints[i].Name, endpoints[i].Cfg, rest)
	}
	f.patchMap(t, lost, "m", `{"data":{"step":"unseen"}}`)
	setRights(f.clusters...)
	for i, w := range watches {
		wantEvents(t, "the right is there again at "+endpoints[i].Name, w, "ADDED m@"+lost+" unseen")
	}
}

// TestFleetRightBySet gives a user the right to a ManagedClusterSet (clustersets/proxy): it
// is the right to each cluster of the set, singly and in views, and to no other. It disturbs
// nothing: the label that makes the set is its own.
func TestFleetRightBySet(t *testing.T) {
	releaseOnNodes(t)
	f := newFleet(t)
	const user, set = "e2e-fleet-set", "e2e-fleet-rights"
	inside, outside := f.clusters[0], f.clusters[1]
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
	}
	labelCluster(t, inside, set, "in")
	installed.MakeOnHub(t, suite.ClusterSets, "ManagedClusterSet", set, map[string]any{
		"clusterSelector": map[string]any{"selectorType": "LabelSelector", "labelSelector": map[string]any{"matchLabels": map[string]any{set: "in"}}},
	})
	token := installed.MakeUser(t, user, append(suite.MayUseViews(), suite.MayReachSet(suite.ReadVerbs, set))...)
	for _, cluster := range f.clusters {
		installed.MayOn(t, cluster, user, suite.Rule("", "configmaps", suite.ReadVerbs))
	}
	for _, endpoint := range installed.ViewEndpoints(allView, token) {
		f.awaitMaps(t, "the set's objects at "+endpoint.Name, endpoint.Cfg, []string{inside + " m"})
	}
	path := "/api/v1/namespaces/" + f.ns + "/configmaps/m"
	single := func(cluster string) (suite.Answer, error) {
		cfg := installed.ThroughProxyAPI(cluster)
		cfg.BearerToken = token
		return suite.Ask(t.Context(), cfg, suite.Request{Method: http.MethodGet, Path: path})
	}
	suite.Eventually(t, inside+" by its own path", func() error {
		got, err := single(inside)
		if err == nil && got.Code != http.StatusOK {
			err = fmt.Errorf("answered %d: %.300s", got.Code, got.Body)
		}
		return err
	})
	if got, err := single(outside); err != nil || got.Code != http.StatusForbidden {
		t.Errorf("%s, which is not in the set: %d %.300s, %v; want 403", outside, got.Code, got.Body, err)
	}
	labelCluster(t, inside, set, nil)
	suite.Eventually(t, inside+" out of reach", func() error {
		got, err := single(inside)
		if err == nil && got.Code != http.StatusForbidden {
			err = fmt.Errorf("answered %d", got.Code)
		}
		return err
	})
}
