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

// TestFleetFrozenAgent freezes the agents of one cluster, which is what an overloaded
// machine and a broken network look like. The others' objects come within the view's
// timeout, with a warning; then everything is there again. It disturbs one cluster, whose
// agents stop for a while.
func TestFleetFrozenAgent(t *testing.T) {
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
	var watches []watch.Interface
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

// TestFleetClustersComeAndGo takes clusters out of views and back, by their labels. A
// watch gets DELETED for the objects of one that leaves and ADDED for those of one that
// joins. It disturbs nothing: the labels are its own.
func TestFleetClustersComeAndGo(t *testing.T) {
	f := newFleet(t)
	const key = "e2e-fleet"
	moving := f.clusters[0]
	var all, rest []string
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
		labelCluster(t, cluster, key, "in")
		all = append(all, cluster+" m")
		if cluster != moving {
			rest = append(rest, cluster+" m")
		}
	}
	selector := map[string]any{"matchLabels": map[string]any{key: "in"}}
	installed.MakeOnHub(t, suite.ClusterSets, "ManagedClusterSet", "e2e-fleet", map[string]any{
		"clusterSelector": map[string]any{"selectorType": "LabelSelector", "labelSelector": selector},
	})
	views := map[string]map[string]any{
		"e2e-by-selector": {"selector": selector}, "e2e-by-set": {"clusterSets": []any{"e2e-fleet"}},
		"e2e-by-both": {"clusterSets": []any{"e2e-fleet"}, "names": []any{f.clusters[1]}},
	}
	type watched struct {
		endpoint suite.Endpoint
		events   watch.Interface
	}
	var watches []watched
	for name, clusters := range views {
		installed.MakeView(t, name, map[string]any{"clusters": clusters})
		for _, endpoint := range installed.ViewEndpoints(name, installed.HubToken) {
			endpoint.Name = name + "/" + endpoint.Name
			f.awaitMaps(t, "all objects in "+endpoint.Name, endpoint.Cfg, all)
			w := f.followMaps(t, endpoint.Cfg, "")
			var want []string
			for _, cluster := range f.clusters {
				want = append(want, "ADDED m@"+cluster)
			}
			wantEvents(t, "objects in "+endpoint.Name, w, want...)
			watches = append(watches, watched{endpoint, w})
		}
	}
	labelCluster(t, moving, key, nil)
	for _, w := range watches {
		wantEvents(t, "a cluster leaves "+w.endpoint.Name, w.events, "DELETED m@"+moving)
		f.awaitMaps(t, "the others' objects in "+w.endpoint.Name, w.endpoint.Cfg, rest)
	}
	wantStatus(t, "e2e-by-set", len(f.clusters)-1)
	f.patchMap(t, moving, "m", `{"data":{"step":"away"}}`)
	labelCluster(t, moving, key, "in")
	for _, w := range watches {
		wantEvents(t, "a cluster joins "+w.endpoint.Name, w.events, "ADDED m@"+moving+" away")
		f.awaitMaps(t, "all objects again in "+w.endpoint.Name, w.endpoint.Cfg, all)
	}
	wantStatus(t, "e2e-by-set", len(f.clusters))
}

// wantStatus waits until the status of a view says how many clusters it has.
func wantStatus(t *testing.T, view string, want int) {
	t.Helper()
	suite.Eventually(t, "the status of view "+view, func() error {
		object, err := installed.HubObjects(t, suite.FleetViews).Get(t.Context(), view, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _ := object.Object["status"].(map[string]any)
		if clusters, reachable := fmt.Sprint(status["clusters"]), fmt.Sprint(status["reachable"]); clusters != fmt.Sprint(want) || reachable != clusters {
			return fmt.Errorf("it has %s clusters, of which %s are reachable; want %d", clusters, reachable, want)
		}
		return nil
	})
}

// TestFleetRightTakenAway takes from jane the right to one cluster while she watches. Its
// objects leave her watch, as if they were deleted; when she has it again, they come back.
// It disturbs nothing.
func TestFleetRightTakenAway(t *testing.T) {
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
	var watches []watch.Interface
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

// TestFleetJaneMayLess lists as jane, who may read ConfigMaps on one cluster and Secrets on
// none, and may exec nowhere. A cluster's refusal is that cluster's; a refusal of all is 403.
// It disturbs nothing.
func TestFleetJaneMayLess(t *testing.T) {
	f := newFleet(t)
	const jane = "e2e-fleet-less"
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
	}
	token := installed.MakeUser(t, jane, append(suite.MayUseViews(), suite.MayReach(suite.AllVerbs))...)
	allowed, refusing := f.clusters[1], slices.Delete(slices.Clone(f.clusters), 1, 2)
	installed.MayOn(t, allowed, jane, suite.Rule("", "configmaps", suite.ReadVerbs))
	for _, endpoint := range installed.ViewEndpoints(allView, token) {
		t.Run(endpoint.Name, func(t *testing.T) {
			f.awaitMaps(t, "jane's objects", endpoint.Cfg, []string{allowed + " m"}, refusing...)
			cs := suite.Clientset(t, endpoint.Cfg).CoreV1()
			if _, err := cs.Secrets(f.ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("listing Secrets: %v, want forbidden", err)
			}
			if _, err := cs.Secrets(f.ns).Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("watching Secrets: %v, want forbidden", err)
			}
			if err := cs.ConfigMaps(f.ns).Delete(t.Context(), "m@"+allowed, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("deleting a ConfigMap: %v, want forbidden", err)
			}
			k := newKubectl(t, endpoint.Cfg)
			out, errs, err := k.try(t.Context(), "", "get", "configmaps", "-n", f.ns, "-l", fleetLabel)
			if err != nil || !slices.Equal(rows(t, out, "CLUSTER", "NAME"), []string{allowed + " m"}) {
				t.Errorf("kubectl get configmaps: %v\n%s%s", err, out, errs)
			}
			for _, cluster := range refusing {
				if !strings.Contains(errs, "Warning:") || !strings.Contains(errs, cluster) {
					t.Errorf("kubectl prints %q, want a warning of %q", errs, cluster)
				}
			}
		})
	}
}

// TestFleetRightBySet gives a user the right to a ManagedClusterSet (clustersets/proxy): it
// is the right to each cluster of the set, singly and in views, and to no other. It disturbs
// nothing: the label that makes the set is its own.
func TestFleetRightBySet(t *testing.T) {
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

// TestFleetResources uses views that have some resources: others are not in them, or are
// one cluster's. It disturbs nothing: what it makes lies in a namespace of its own.
func TestFleetResources(t *testing.T) {
	f := newFleet(t)
	var all []string
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
		all = append(all, cluster+" m")
	}
	alone := f.clusters[1]
	maps := []any{map[string]any{"group": "", "resource": "configmaps", "namespaces": []any{f.ns}}}
	installed.MakeView(t, "e2e-maps", map[string]any{"resources": maps})
	installed.MakeView(t, "e2e-maps-and-one", map[string]any{"resources": maps, "unlistedResources": map[string]any{"cluster": alone}})
	for i, endpoint := range installed.ViewEndpoints("e2e-maps", installed.HubToken) {
		withOne := installed.ViewEndpoints("e2e-maps-and-one", installed.HubToken)[i].Cfg
		f.awaitMaps(t, "objects at "+endpoint.Name, endpoint.Cfg, all)
		f.awaitMaps(t, "objects with an unlisted cluster at "+endpoint.Name, withOne, all)
		cs := suite.Clientset(t, endpoint.Cfg)
		if _, err := cs.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: another namespace: %v, want not found", endpoint.Name, err)
		}
		if _, err := cs.CoreV1().Secrets(f.ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: another resource: %v, want not found", endpoint.Name, err)
		}
		uid, err := f.on[alone].CoreV1().Namespaces().Get(t.Context(), f.ns, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := suite.Clientset(t, withOne).CoreV1().Namespaces().Get(t.Context(), f.ns, metav1.GetOptions{})
		if err != nil || got.UID != uid.UID {
			t.Errorf("%s: an unlisted resource: %v, %v; want that of %q", endpoint.Name, got, err, alone)
		}
	}
}

// TestFleetWrongSelector makes a view whose selector is none: it serves nothing rather
// than everything, and its status says why. It disturbs nothing.
func TestFleetWrongSelector(t *testing.T) {
	wrong := map[string]any{"matchExpressions": []any{map[string]any{"key": "e2e", "operator": "Near", "values": []any{"x"}}}}
	installed.MakeOnHub(t, suite.FleetViews, "FleetView", "e2e-wrong", map[string]any{"clusters": map[string]any{"selector": wrong}})
	suite.Eventually(t, "the view's status to say what is wrong", func() error {
		object, err := installed.HubObjects(t, suite.FleetViews).Get(t.Context(), "e2e-wrong", metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(object.Object["status"]), "SelectorInvalid") {
			err = fmt.Errorf("it is %v", object.Object["status"])
		}
		return err
	})
	for _, endpoint := range installed.ViewEndpoints("e2e-wrong", installed.HubToken) {
		suite.Eventually(t, "a refusal at "+endpoint.Name, func() error {
			got, err := suite.Ask(t.Context(), endpoint.Cfg, suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces"})
			if err == nil && (got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body, "selector")) {
				err = fmt.Errorf("answered %d: %.300s", got.Code, got.Body)
			}
			return err
		})
	}
}
