package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// thirdMember is the hub as a third cluster of the view of all, while it is one: a cluster
// that joins and leaves as clusters do, and needs no control plane of its own.
type thirdMember struct {
	*fleet
	endpoints []suite.Endpoint
	// watches of each endpoint began before the cluster joined.
	watches []watch.Interface
}

// beforeThird watches the view of all as a user who may do what the scenario does on each
// cluster, except that the hub shows no Secrets.
func beforeThird(t *testing.T) *thirdMember {
	t.Helper()
	f := newFleet(t)
	const user = "e2e-fleet-third"
	maps := suite.Rule("", "configmaps", suite.AllVerbs)
	token := installed.MakeUser(t, user, append(suite.MayUseViews(), suite.MayReach(suite.AllVerbs), maps)...)
	for _, cluster := range f.clusters {
		installed.MayOn(t, cluster, user, maps, suite.Rule("", "secrets", suite.ReadVerbs))
		f.makeMaps(t, cluster, "m")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}}
	if _, err := installed.Hub.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = installed.Hub.CoreV1().Namespaces().Delete(context.Background(), f.ns, metav1.DeleteOptions{})
	})
	third := &thirdMember{fleet: f, endpoints: installed.ViewEndpoints(allView, token)}
	var want []string
	for _, cluster := range f.clusters {
		want = append(want, "ADDED m@"+cluster)
	}
	for _, endpoint := range third.endpoints {
		f.awaitMaps(t, "two clusters' objects at "+endpoint.Name, endpoint.Cfg, f.names("m"))
		w := f.followMaps(t, endpoint.Cfg, "")
		wantEvents(t, "two clusters' objects at "+endpoint.Name, w, slices.Clone(want)...)
		third.watches = append(third.watches, w)
	}
	f.on[localCluster] = installed.Hub
	f.clusters = slices.Sorted(slices.Values(append(f.clusters, localCluster)))
	f.makeMaps(t, localCluster, "m")
	return third
}

// names are CLUSTER NAME of an object that all clusters have, or all but some.
func (f *fleet) names(name string, but ...string) []string {
	all := []string{}
	for _, cluster := range f.clusters {
		if !slices.Contains(but, cluster) {
			all = append(all, cluster+" "+name)
		}
	}
	return all
}

// joined wants what a view promises of three clusters, of which one has joined meanwhile.
func (f *thirdMember) joined(t *testing.T) {
	for i, endpoint := range f.endpoints {
		f.awaitMaps(t, "three clusters' objects at "+endpoint.Name, endpoint.Cfg, f.names("m"))
		wantEvents(t, "a third cluster joins at "+endpoint.Name, f.watches[i], "ADDED m@"+localCluster)
		t.Run(endpoint.Name, func(t *testing.T) {
			t.Run("lists", func(t *testing.T) { f.lists(t, endpoint) })
			t.Run("names", func(t *testing.T) { f.named(t, endpoint) })
			t.Run("writes", func(t *testing.T) { f.writes(t, endpoint, i) })
			t.Run("denied", func(t *testing.T) { f.denied(t, endpoint) })
		})
	}
}

// lists lists in pages that end within clusters, as a Table, and with selectors.
func (f *thirdMember) lists(t *testing.T, endpoint suite.Endpoint) {
	maps := suite.Clientset(t, endpoint.Cfg).CoreV1().ConfigMaps(f.ns)
	var got []string
	options := metav1.ListOptions{LabelSelector: fleetLabel, Limit: 1}
	for pages := 1; ; pages++ {
		list, err := maps.List(t.Context(), options)
		if err != nil || pages > len(f.clusters)+1 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, m := range list.Items {
			got = append(got, clusterOf(&m)+" "+m.Name)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	wantSame(t, "objects in pages of one", slices.Sorted(slices.Values(got)), f.names("m"))
	k := newKubectl(t, endpoint.Cfg)
	table := k.run(t, "get", "configmaps", "-n", f.ns, "-l", fleetLabel)
	wantSame(t, "kubectl get", rows(t, table, "CLUSTER", "NAME"), f.names("m"))
	for selector, want := range map[string][]string{
		"metadata.cluster=" + localCluster:                        {localCluster + " m@" + localCluster},
		"metadata.cluster!=" + localCluster + ",metadata.name=m":  f.names("m", localCluster),
		"metadata.name=m@" + localCluster:                         {localCluster + " m@" + localCluster},
		"metadata.cluster!=" + localCluster + ",metadata.name!=m": nil,
	} {
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: fleetLabel, FieldSelector: selector})
		if err != nil {
			t.Fatalf("field selector %s: %v", selector, err)
		}
		var got []string
		for _, m := range list.Items {
			got = append(got, clusterOf(&m)+" "+m.Name)
		}
		wantSame(t, "field selector "+selector, got, want)
	}
}

// isUnnamed reports whether an error says that the request must name a cluster. Its reason is not
// Conflict, for which clients would try again.
func isUnnamed(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code == http.StatusConflict && !apierrors.IsConflict(err)
}

// named gets a name that three clusters have, one has, and none has.
func (f *thirdMember) named(t *testing.T, endpoint suite.Endpoint) {
	only := "only-" + endpoint.Name
	f.makeMaps(t, localCluster, only)
	t.Cleanup(func() {
		_ = installed.Hub.CoreV1().ConfigMaps(f.ns).Delete(context.Background(), only, metav1.DeleteOptions{})
	})
	maps := suite.Clientset(t, endpoint.Cfg).CoreV1().ConfigMaps(f.ns)
	if got, err := maps.Get(t.Context(), only, metav1.GetOptions{}); err != nil || clusterOf(got) != localCluster {
		t.Errorf("a name that one cluster has: %v, %v; want its object", got, err)
	}
	_, err := maps.Get(t.Context(), "m", metav1.GetOptions{})
	for _, cluster := range f.clusters {
		if !isUnnamed(err) || !strings.Contains(err.Error(), "m@"+cluster) {
			t.Errorf("a name that three clusters have: %v, want 409 that names m@%s", err, cluster)
		}
	}
	if _, err := maps.Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a name that no cluster has: %v, want not found", err)
	}
}

// writes changes objects of the third cluster, with the versions of a list and of an event.
func (f *thirdMember) writes(t *testing.T, endpoint suite.Endpoint, i int) {
	maps := suite.Clientset(t, endpoint.Cfg).CoreV1().ConfigMaps(f.ns)
	name := "made-" + endpoint.Name
	made, err := maps.Create(t.Context(), configMap(localCluster, name+"@"+localCluster), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	event := nextAbout(t, f.watches[i], name)
	if want := "ADDED " + name + "@" + localCluster; strings.TrimSpace(event) != want {
		t.Errorf("event %q, want %q", event, want)
	}
	stale := made.DeepCopy()
	made.Data["step"] = "updated"
	if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Errorf("updating with the version of the answer: %v", err)
	}
	if _, err := maps.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updating with an older version: %v, want a conflict", err)
	}
	patch := []byte(`{"data":{"step":"patched"}}`)
	if _, err := maps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); !isUnnamed(err) || !strings.Contains(err.Error(), name+"@"+localCluster) {
		t.Errorf("patching a name that one cluster has: %v, want 409 that names %s@%s", err, name, localCluster)
	}
	if _, err := maps.Patch(t.Context(), name+"@"+localCluster, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("patching an object of the third cluster: %v", err)
	}
	if _, err := maps.Create(t.Context(), configMap("", "nowhere"), metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("creating without a cluster: %v, want 405", err)
	}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: fleetLabel}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("deleting a collection of all clusters: %v, want 405", err)
	}
	of := metav1.ListOptions{LabelSelector: fleetLabel, FieldSelector: "metadata.cluster=" + localCluster + ",metadata.name=" + name}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, of); err != nil {
		t.Errorf("deleting a collection of one cluster: %v", err)
	}
	for _, want := range []string{"MODIFIED " + name + "@" + localCluster + " updated", "MODIFIED " + name + "@" + localCluster + " patched", "DELETED " + name + "@" + localCluster + " patched"} {
		if event := nextAbout(t, f.watches[i], name); event != want {
			t.Errorf("event %q, want %q", event, want)
		}
	}
}

// nextAbout returns the next event about an object of that name.
func nextAbout(t *testing.T, w watch.Interface, name string) string {
	t.Helper()
	for {
		if event, _ := next(t, w); strings.Contains(event, " "+name+"@") {
			return event
		}
	}
}

// denied lists what the third cluster refuses to show.
func (f *thirdMember) denied(t *testing.T, endpoint suite.Endpoint) {
	cfg := endpoint.Cfg
	seen := &warnings{}
	cfg.WarningHandler = seen
	defer func() { cfg.WarningHandler = nil }()
	if _, err := suite.Clientset(t, cfg).CoreV1().Secrets(f.ns).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing what two of three clusters show: %v", err)
	}
	if got := seen.ofClusters(); len(got) != 1 || !strings.Contains(got[0], localCluster+" refused") {
		t.Errorf("Warnings are %q, want one of the refusal of %s", got, localCluster)
	}
}

// left wants the third cluster's objects to leave watches and lists.
func (f *thirdMember) left(t *testing.T) {
	for i, endpoint := range f.endpoints {
		for event := ""; !strings.HasPrefix(event, "DELETED m@"+localCluster); {
			event = nextAbout(t, f.watches[i], "m")
		}
		f.awaitMaps(t, "two clusters' objects again at "+endpoint.Name, endpoint.Cfg, f.names("m", localCluster))
		resp, s := suite.Status(t, endpoint.Cfg, fmt.Sprintf("/api/v1/namespaces/%s/configmaps/m@%s", f.ns, localCluster))
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: an object of the cluster that has left: %d %q, want 404", endpoint.Name, resp.StatusCode, s.Message)
		}
	}
}
