package clusters

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// listingHub lists what it has by resource, is silent on watches, and answers 404 for
// resources that it lacks.
type listingHub struct {
	mu      sync.Mutex
	lists   map[string]any
	refuses string // a resource, which is answered 403
	refused int    // how often it was
}

func (h *listingHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	h.mu.Lock()
	list, ok := h.lists[resource]
	refuses := resource == h.refuses
	if refuses {
		h.refused++
	}
	h.mu.Unlock()
	switch {
	case refuses:
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil).ErrStatus)
	case !ok:
		http.NotFound(w, r)
	case r.URL.Query().Has("sendInitialEvents"):
		http.Error(w, "sendInitialEvents is not supported", http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") == "":
		_ = json.NewEncoder(w).Encode(list)
	default:
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func (h *listingHub) set(resource, apiVersion, kind string, items ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists[resource] = map[string]any{"apiVersion": apiVersion, "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "2"}, "items": items}
}

func view(name string, change func(*v1alpha1.FleetView)) *v1alpha1.FleetView {
	v := &v1alpha1.FleetView{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2, Annotations: map[string]string{"long": "text"}}}
	change(v)
	return v
}

// startViews has clusters a (label region: eu), b in set prod, and c without the addon. The hub has
// what prepare sets from the beginning.
func startViews(t *testing.T, prepare func(*listingHub)) (*Views, *Clusters, *listingHub) {
	t.Helper()
	hub := &listingHub{lists: map[string]any{}}
	var managed, addons []any
	for name, of := range map[string]map[string]string{"a": {"region": "eu"}, "b": {clusterv1beta2.ClusterSetLabel: "prod"}, "c": nil} {
		managed = append(managed, cluster("1", func(c *clusterv1.ManagedCluster) { c.Name, c.Labels = name, of }))
		if name != "c" {
			addons = append(addons, addon("1", func(a *addonv1alpha1.ManagedClusterAddOn) { a.Namespace = name }))
		}
	}
	hub.set("managedclusters", "cluster.open-cluster-management.io/v1", "ManagedCluster", managed...)
	hub.set("managedclusteraddons", "addon.open-cluster-management.io/v1alpha1", "ManagedClusterAddOn", addons...)
	prepare(hub)
	api := httptest.NewServer(hub)
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL}
	clusters, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	views, err := NewViews(config, clusters)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := views.Get("all"); err == nil {
		t.Error("views are known before the hub was asked")
	}
	var running sync.WaitGroup
	running.Go(func() { _ = clusters.Run(t.Context()) })
	running.Go(func() { _ = views.Run(t.Context()) })
	t.Cleanup(func() { api.CloseClientConnections(); running.Wait() })
	return views, clusters, hub
}

func known(t *testing.T, views *Views, clusters *Clusters) {
	t.Helper()
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "all is known", func() bool {
		_, err := views.Get("")
		_, ofSets := views.Sets()
		return err == nil && ofSets == nil && clusters.Synced() == nil
	})
}

// TestViews has views of every kind, and sets of both.
func TestViews(t *testing.T) {
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "nonsense"}}}
	invalid := func(v *v1alpha1.FleetView) { // as the addon manager found it once
		v.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTypeFleetViewValid, Status: metav1.ConditionFalse}}
	}
	views, clusters, _ := startViews(t, func(hub *listingHub) {
		hub.set("managedclustersets", "cluster.open-cluster-management.io/v1beta2", "ManagedClusterSet",
			&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "prod"}},
			&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "eu"}, Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{
				SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}}})
		hub.set("fleetviews", v1alpha1.GroupVersion.String(), "FleetView",
			view("all", func(*v1alpha1.FleetView) {}),
			view("sets", func(v *v1alpha1.FleetView) { v.Spec.Clusters.ClusterSets = []string{"eu", "none"} }),
			view("names", func(v *v1alpha1.FleetView) { v.Spec.Clusters.Names = []string{"b", "c", "nowhere"} }),
			view("broken", func(v *v1alpha1.FleetView) { v.Spec.Clusters.Selector = broken }),
			view("invalid", invalid))
	})
	known(t, views, clusters)
	names := views.Names()
	slices.Sort(names)
	if diff := cmp.Diff([]string{"all", "broken", "invalid", "names", "sets"}, names); diff != "" {
		t.Errorf("Names (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"all": "a b", "sets": "a", "names": "b", "broken": "error", "invalid": "a b"} {
		found, err := views.Get(name)
		if err != nil || found == nil || found.Annotations != nil {
			t.Fatalf("view %s: %+v, %v", name, found, err)
		}
		selected, err := views.Clusters(found)
		got := strings.Join(selected, " ")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("view %s has %q (%v), want %q", name, got, err, want)
		}
	}
	if found, err := views.Get("other"); found != nil || err != nil {
		t.Errorf("a view that is not there: %v, %v", found, err)
	}
	sets, _ := views.Sets()
	slices.Sort(sets)
	if got := strings.Join(sets, " "); got != "eu prod" {
		t.Errorf("Sets are %q, want eu prod", got)
	}
	for cluster, want := range map[string]string{"a": "eu", "b": "prod", "nowhere": ""} {
		if got := strings.Join(views.Containing(sets)(cluster), " "); got != want {
			t.Errorf("cluster %s is in %q, want %q", cluster, got, want)
		}
	}
}

// TestInSet has sets of both kinds, and what cannot be known.
func TestInSet(t *testing.T) {
	views, clusters, _ := startViews(t, func(hub *listingHub) {
		hub.set("managedclustersets", "cluster.open-cluster-management.io/v1beta2", "ManagedClusterSet",
			setOf("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil), setOf("eu", clusterv1beta2.LabelSelector, &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}),
			setOf("global", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), setOf("later", "Another", nil),
			setOf("broken", clusterv1beta2.LabelSelector, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "nonsense"}}}))
		hub.set("fleetviews", v1alpha1.GroupVersion.String(), "FleetView")
	})
	known(t, views, clusters)
	for _, tc := range []struct {
		cluster, set string
		want         bool
		wantError    string
	}{
		{cluster: "a", set: "eu", want: true}, {cluster: "b", set: "eu"},
		{cluster: "a", set: "prod"}, {cluster: "b", set: "prod", want: true},
		{cluster: "a", set: "global", want: true}, {cluster: "b", set: "global", want: true},
		{cluster: "a", set: "pord", wantError: `there is no ManagedClusterSet "pord"`},
		{cluster: "a", set: "later", wantError: `selectorType "Another" is unknown`},
		{cluster: "a", set: "broken", wantError: "nonsense"},
		{cluster: "nowhere", set: "global", wantError: `there is no ManagedCluster "nowhere"`},
	} {
		got, err := views.InSet(tc.cluster, tc.set)
		if got != tc.want || (err != nil) != (tc.wantError != "") || err != nil && !strings.Contains(err.Error(), tc.wantError) {
			t.Errorf("cluster %s in set %s: %t, %v; want %t and an error with %q", tc.cluster, tc.set, got, err, tc.want, tc.wantError)
		}
	}
	if _, err := (&Views{clusters: clusters, sets: &optional{what: "ManagedClusterSets", informer: unsynced{}}}).InSet("a", "global"); err == nil {
		t.Error("a set is known before the hub was asked")
	}
}

// unsynced is an informer that has read nothing yet.
type unsynced struct{ cache.SharedIndexInformer }

func (unsynced) HasSynced() bool { return false }

func setOf(name string, kind clusterv1beta2.SelectorType, by *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	return &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: by}}}
}

// TestHubWithoutViews has a hub without FleetViews and ManagedClusterSets, which hurts
// nothing else, and get FleetViews later.
func TestHubWithoutViews(t *testing.T) {
	views, clusters, hub := startViews(t, func(*listingHub) {})
	known(t, views, clusters)
	if found, err := views.Get("all"); found != nil || err != nil || len(views.Names()) > 0 || clusters.Served("a") != nil || len(views.Containing([]string{"eu"})("a")) > 0 {
		t.Errorf("view %v, %v, names %v; want none, and cluster a served", found, err, views.Names())
	}
	hub.set("fleetviews", v1alpha1.GroupVersion.String(), "FleetView", view("all", func(*v1alpha1.FleetView) {}))
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "the view comes", func() bool { found, _ := views.Get("all"); return found != nil })
}

// TestRefusedIsNotNone has a hub that has just started, and refuses to list sets for a moment. A
// view of a set and a name is not served without the set's clusters meanwhile, nor is the set
// known to be none.
func TestRefusedIsNotNone(t *testing.T) {
	some := view("some", func(v *v1alpha1.FleetView) {
		v.Spec.Clusters.ClusterSets, v.Spec.Clusters.Names = []string{"prod"}, []string{"a"}
	})
	views, clusters, hub := startViews(t, func(hub *listingHub) {
		hub.set("fleetviews", v1alpha1.GroupVersion.String(), "FleetView", some)
		hub.set("managedclustersets", "cluster.open-cluster-management.io/v1beta2", "ManagedClusterSet", &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "prod"}})
		hub.refuses = "managedclustersets"
	})
	until := wait.Poll{Every: 10 * time.Millisecond}.Until
	until(t, "the sets are refused twice", func() bool {
		hub.mu.Lock()
		defer hub.mu.Unlock()
		return hub.refused >= 2 && clusters.Synced() == nil // what came of the first time has happened
	})
	if sets, err := views.Sets(); err == nil {
		t.Errorf("the sets are %q though the hub has refused to list them", sets)
	}
	if selected, err := views.Clusters(some); err == nil {
		t.Errorf("the view has %q though its set is not known", selected)
	}
	if selected, err := views.Clusters(view("names", func(v *v1alpha1.FleetView) { v.Spec.Clusters.Names = []string{"a"} })); err != nil || len(selected) != 1 {
		t.Errorf("a view without sets has %q, %v; want a", selected, err)
	}
	hub.mu.Lock()
	hub.refuses = ""
	hub.mu.Unlock()
	until(t, "the view has both clusters", func() bool {
		selected, err := views.Clusters(some)
		if err == nil && len(selected) != 2 {
			t.Fatalf("the view has %q", selected)
		}
		return err == nil
	})
}
