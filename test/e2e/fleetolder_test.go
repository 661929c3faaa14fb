package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// olderCluster is the managed cluster whose kube-apiserver is a minor release older.
var olderCluster = os.Getenv("E2E_OLDER")

// TestFleetOlderMember has a member of another Kubernetes version: what a view serves is what
// the members do together, and all of it can be listed. It disturbs nothing: what it makes lies
// in a namespace of its own.
func TestFleetOlderMember(t *testing.T) {
	releaseOnNodes(t)
	if olderCluster == "" {
		t.Skip("builds one more kube-apiserver: make e2e-skew")
	}
	f := newFleet(t)
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "m")
		version, err := f.on[cluster].Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if isOlder := version.GitVersion == lab.OlderKubernetes; isOlder != (cluster == olderCluster) {
			t.Fatalf("%s has Kubernetes %s, and %s alone is to have %s", cluster, version, olderCluster, lab.OlderKubernetes)
		}
	}
	installed.ForEachViewEndpoint(t, allView, func(t *testing.T, cfg *rest.Config) {
		view := suite.Clientset(t, cfg).Discovery()
		want, wantErr := f.on[f.mostly()].Discovery().ServerVersion()
		if len(f.clusters) == 2 { // each release is near to the other one
			want.GitVersion = lab.OlderKubernetes
		}
		if version, err := view.ServerVersion(); err != nil || wantErr != nil || version.GitVersion != want.GitVersion {
			t.Errorf("/version is %v, %v; want %s, %v", version, err, want, wantErr)
		}
		t.Run("discovery", func(t *testing.T) { f.servesUnion(t, cfg) })
		t.Run("OpenAPI", func(t *testing.T) { f.describesUnion(t, cfg) })
		t.Run("lists", func(t *testing.T) { f.listsUnion(t, cfg) })
		t.Run("watch", func(t *testing.T) { f.watchesOlder(t, cfg) })
	})
}

// served are the resources of a server by their names, each with the verbs.
func served(t *testing.T, cfg *rest.Config, legacy bool) map[string]metav1.Verbs {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.UseLegacyDiscovery = legacy
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metav1.Verbs{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			slices.Sort(resource.Verbs)
			all[fmt.Sprintf("%s %s namespaced=%t %s", list.GroupVersion, resource.Name, resource.Namespaced, resource.Kind)] = resource.Verbs
		}
	}
	return all
}

// servedByMembers are the resources of all clusters.
func (f *fleet) servedByMembers(t *testing.T) map[string]metav1.Verbs {
	t.Helper()
	all := map[string]metav1.Verbs{}
	for _, cluster := range f.clusters {
		maps.Copy(all, served(t, installed.Direct(cluster), false))
	}
	return all
}

// servesUnion wants the resources of all members, of which each version has its own.
func (f *fleet) servesUnion(t *testing.T, cfg *rest.Config) {
	want := slices.Sorted(maps.Keys(f.servedByMembers(t)))
	for _, cluster := range f.clusters {
		if len(served(t, installed.Direct(cluster), false)) == len(want) && cluster == olderCluster {
			t.Errorf("%s serves all that the others do: nothing is shown", cluster)
		}
	}
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(served(t, cfg, legacy)))); diff != "" {
			t.Errorf("%s discovery (-members +view):\n%s", name, diff)
		}
	}
}

// mostly is a cluster that says what most of them say, and of two the first.
func (f *fleet) mostly() string {
	for _, cluster := range f.clusters {
		if len(f.clusters) == 2 || cluster != olderCluster {
			return cluster
		}
	}
	return ""
}

// describesUnion wants the OpenAPI documents of all members, each as most have it.
func (f *fleet) describesUnion(t *testing.T, cfg *rest.Config) {
	want := map[string][]byte{}
	for _, cluster := range f.clusters {
		maps.Copy(want, documents(t, installed.Direct(cluster)))
	}
	maps.Copy(want, documents(t, installed.Direct(f.mostly())))
	got := documents(t, cfg)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("documents (-members +view):\n%s", diff)
	}
	for path, document := range want {
		if !bytes.Equal(document, got[path]) {
			t.Errorf("the document of %s has %d bytes, and is not that of most members, which has %d", path, len(got[path]), len(document))
		}
	}
	all, err := suite.Clientset(t, cfg).Discovery().OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, definition := range all.GetDefinitions().GetAdditionalProperties() {
		described[definition.GetName()] = true
	}
	for _, cluster := range f.clusters {
		schema, err := f.on[cluster].Discovery().OpenAPISchema()
		if err != nil {
			t.Fatal(err)
		}
		for _, definition := range schema.GetDefinitions().GetAdditionalProperties() {
			// Of the older one that is all kinds: what kinds are made of that both have says another one.
			wanted := cluster != olderCluster
			for _, extension := range definition.GetValue().GetVendorExtension() {
				wanted = wanted || extension.GetName() == "x-kubernetes-group-version-kind"
			}
			if wanted && !described[definition.GetName()] {
				t.Errorf("/openapi/v2 lacks %s of %s", definition.GetName(), cluster)
			}
		}
	}
}

// documents are the OpenAPI v3 documents of a server by their paths.
func documents(t *testing.T, cfg *rest.Config) map[string][]byte {
	t.Helper()
	paths, err := suite.Clientset(t, cfg).Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for path, gv := range paths {
		if all[path], err = gv.Schema("application/json"); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return all
}

// changing are resources whose objects come and go by themselves.
var changing = []string{" events ", " leases "}

// listsUnion lists everything that can be listed, as objects and as a Table: what is in each
// member is in the view.
func (f *fleet) listsUnion(t *testing.T, cfg *rest.Config) {
	forms := map[string]string{"objects": "application/json", "Table": "application/json;as=Table;v=v1;g=meta.k8s.io"}
	for resource, verbs := range f.servedByMembers(t) {
		if !slices.Contains(verbs, "list") || slices.ContainsFunc(changing, func(name string) bool { return strings.Contains(resource, name) }) {
			continue
		}
		gv, name, _ := strings.Cut(resource, " ")
		name, _, _ = strings.Cut(name, " ")
		path := "/apis/" + gv + "/" + name
		if gv == "v1" {
			path = "/api/v1/" + name
		}
		for form, accept := range forms {
			suite.Eventually(t, path+" as "+form, func() error {
				var want []string
				for _, cluster := range f.clusters {
					uids, err := listedUIDs(t, installed.Direct(cluster), path, accept, cluster == olderCluster)
					if err != nil {
						return fmt.Errorf("%s: %w", cluster, err)
					}
					want = append(want, uids...)
				}
				got, err := listedUIDs(t, cfg, path, accept, false)
				if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); err == nil && diff != "" {
					err = fmt.Errorf("UIDs (-members +view):\n%s", diff)
				}
				return err
			})
		}
	}
}

// listedUIDs are those of the objects in a list, or in the rows of a Table. A server that may lack
// the resource lists nothing then.
func listedUIDs(t *testing.T, cfg *rest.Config, path, accept string, mayLack bool) ([]string, error) {
	t.Helper()
	body, err := suite.Clientset(t, cfg).CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).Do(t.Context()).Raw()
	if mayLack && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	type object struct {
		Metadata struct{ UID string }
	}
	var list struct {
		Kind  string
		Items []object
		Rows  []struct{ Object object }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%w: %.300s", err, body)
	}
	if isTable := list.Kind == "Table"; isTable != strings.Contains(accept, "Table") {
		return nil, fmt.Errorf("the answer is a %s", list.Kind)
	}
	uids := []string{}
	for _, o := range list.Items {
		uids = append(uids, o.Metadata.UID)
	}
	for _, row := range list.Rows {
		uids = append(uids, row.Object.Metadata.UID)
	}
	return uids, nil
}

// watchesOlder wants the initial events of all members and their end, and then a change of the
// older one.
func (f *fleet) watchesOlder(t *testing.T, cfg *rest.Config) {
	ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
	defer cancel()
	w, err := suite.Clientset(t, cfg).CoreV1().ConfigMaps(f.ns).Watch(ctx, metav1.ListOptions{
		LabelSelector: fleetLabel, AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var want []string
	for _, cluster := range f.clusters {
		want = append(want, "ADDED m@"+cluster)
	}
	initial := func() (got []string) {
		for e := range w.ResultChan() {
			m, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				t.Fatalf("%v %v, want an event of a ConfigMap", e.Type, e.Object)
			}
			if e.Type == watch.Bookmark && m.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				break
			}
			got = append(got, fmt.Sprintf("%s %s@%s", e.Type, m.Name, clusterOf(m)))
		}
		slices.Sort(got)
		return got
	}
	wantSame(t, "events until the bookmark", initial(), want)
	step := strings.ReplaceAll(t.Name(), "/", "-")
	f.patchMap(t, olderCluster, "m", `{"data":{"step":"`+step+`"}}`)
	wantEvents(t, "a change of the older member", w, "MODIFIED m@"+olderCluster+" "+step)
}
