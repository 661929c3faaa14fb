package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
)

// union are the ConfigMaps of a scenario on all clusters, as a view has them, but for
// resourceVersions.
func (f *fleet) union(t *testing.T) []corev1.ConfigMap {
	t.Helper()
	var all []corev1.ConfigMap
	for _, cluster := range f.clusters {
		list, err := f.on[cluster].CoreV1().ConfigMaps(f.ns).List(t.Context(), metav1.ListOptions{LabelSelector: fleetLabel})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Items {
			m.Annotations, m.ResourceVersion = map[string]string{fleetview.AnnotationCluster: cluster}, ""
			all = append(all, m)
		}
	}
	return all
}

// TestFleetLists wants of lists, in each way to ask for them, the objects of all clusters
// just as the clusters have them. It disturbs nothing: what it makes lies in a namespace
// of its own.
func TestFleetLists(t *testing.T) {
	f := newFleet(t)
	for i, cluster := range f.clusters {
		for n := range 3 + i {
			f.makeMaps(t, cluster, fmt.Sprint("m", n))
		}
	}
	want := f.union(t)
	protobuf := func(cfg *rest.Config) { cfg.ContentType = "application/vnd.kubernetes.protobuf" }
	installed.ForEachViewEndpoint(t, allView, func(t *testing.T, cfg *rest.Config) {
		for name, test := range map[string]struct {
			limit  int64
			change func(*rest.Config)
		}{
			"JSON": {}, "JSON, pages": {limit: 2}, "protobuf": {change: protobuf}, "protobuf, pages": {limit: 2, change: protobuf},
		} {
			cfg := rest.CopyConfig(cfg)
			cfg.ContentType = "application/json"
			if test.change != nil {
				test.change(cfg)
			}
			var got []corev1.ConfigMap
			for _, m := range pages(t, suite.Clientset(t, cfg), f.ns, test.limit) {
				if m.ResourceVersion == "" {
					t.Errorf("%s: %s has no resourceVersion", name, m.Name)
				}
				m.ResourceVersion = ""
				got = append(got, m)
			}
			if test.limit > 0 { // a cluster that is late comes last
				slices.SortStableFunc(got, func(a, b corev1.ConfigMap) int { return strings.Compare(clusterOf(&a), clusterOf(&b)) })
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-clusters' +view's):\n%s", name, diff)
			}
		}
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(f.ns).List(t.Context(), metav1.ListOptions{LabelSelector: fleetLabel})
		if err != nil || len(list.Items) != len(want) {
			t.Fatalf("metadata only: %d objects, %v; want %d", len(list.Items), err, len(want))
		}
		for i, m := range list.Items {
			if m.UID != want[i].UID || clusterOf(&m) != clusterOf(&want[i]) {
				t.Errorf("metadata only: object %d is %s of %s, want %s of %s", i, m.Name, clusterOf(&m), want[i].Name, clusterOf(&want[i]))
			}
		}
		testForeignVersions(t, suite.Clientset(t, cfg).CoreV1().RESTClient(), f.ns)
	})
}

// pages lists with a limit until there are no more.
func pages(t *testing.T, cs *kubernetes.Clientset, ns string, limit int64) []corev1.ConfigMap {
	t.Helper()
	var all []corev1.ConfigMap
	options := metav1.ListOptions{LabelSelector: fleetLabel, Limit: limit}
	for n := 0; ; n++ {
		page, err := cs.CoreV1().ConfigMaps(ns).List(t.Context(), options)
		if err != nil {
			t.Fatalf("page %d with limit %d: %v", n, limit, err)
		}
		if limit > 0 && int64(len(page.Items)) > limit || limit > 0 && n > 100 {
			t.Fatalf("page %d has %d objects, want at most %d, and an end", n, len(page.Items), limit)
		}
		all = append(all, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return all
		}
	}
}

// testForeignVersions sends continue tokens and resourceVersions that are none of a view.
func testForeignVersions(t *testing.T, client rest.Interface, ns string) {
	t.Helper()
	for _, query := range []string{"limit=2&continue=x", "limit=2&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", "watch=1&resourceVersion=12", "watch=1&resourceVersion=x",
		"resourceVersion=12&resourceVersionMatch=Exact", "limit=-1", "watch=1&timeoutSeconds=x"} {
		err := client.Get().AbsPath("/api/v1/namespaces/" + ns + "/configmaps").RequestURI("/api/v1/namespaces/" + ns + "/configmaps?" + query).Do(t.Context()).Error()
		if !apierrors.IsBadRequest(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("%s: %v, want 400 or 410", query, err)
		}
	}
}

// TestFleetWrites changes objects with client-go: the cluster is named, or known, and
// versions of the view are the cluster's own for optimistic locking. It disturbs nothing:
// what it makes lies in a namespace of its own.
func TestFleetWrites(t *testing.T) {
	f := newFleet(t)
	target, other := f.clusters[1], f.clusters[0]
	f.makeMaps(t, other, "on-another", "both")
	f.makeMaps(t, target, "both")
	installed.ForEachViewEndpoint(t, allView, func(t *testing.T, cfg *rest.Config) {
		maps := suite.Clientset(t, cfg).CoreV1().ConfigMaps(f.ns)
		_, err := maps.Create(t.Context(), configMap("", "new"), metav1.CreateOptions{})
		if !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "NAME@CLUSTER") {
			t.Errorf("create without a cluster: %v, want 405 that says how", err)
		}
		named := configMap(target, "new")
		named.Annotations = map[string]string{fleetview.AnnotationCluster: target}
		made, err := maps.Create(t.Context(), named, metav1.CreateOptions{})
		if err != nil {
			t.Fatal("create with the annotation:", err)
		}
		if clusterOf(made) != target {
			t.Errorf("the answer to create is of cluster %q, want %q", clusterOf(made), target)
		}
		made.Data["step"] = "updated"
		updated, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}) // its annotation names the cluster
		if err != nil {
			t.Fatal("update with the version of create:", err)
		}
		if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update with an old version: %v, want a conflict", err)
		}
		list, err := maps.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=new"})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("listing it: %d objects, %v; want 1", len(list.Items), err)
		}
		if list.Items[0].Data["step"] = "listed"; len(list.Items[0].ResourceVersion) != len(updated.ResourceVersion) {
			t.Errorf("versions %s and %s are not of one length", list.Items[0].ResourceVersion, updated.ResourceVersion)
		}
		if _, err := maps.Update(t.Context(), &list.Items[0], metav1.UpdateOptions{}); err != nil {
			t.Error("update with the version of a list:", err)
		}
		stale := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{"step":"stale"}}`, made.ResourceVersion)
		if _, err := maps.Patch(t.Context(), "new@"+target, types.MergePatchType, stale, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("patch with an old version: %v, want a conflict", err)
		}
		if _, err := maps.Patch(t.Context(), "new@"+target, types.StrategicMergePatchType, []byte(`{"data":{"step":"patched"}}`), metav1.PatchOptions{}); err != nil {
			t.Error("strategic merge patch:", err)
		}
		if _, err := maps.Apply(t.Context(), corev1ac.ConfigMap("new@"+target, f.ns).WithData(map[string]string{"applied": "1"}), metav1.ApplyOptions{FieldManager: "e2e"}); err != nil {
			t.Error("server-side apply:", err)
		}
		there, err := f.on[target].CoreV1().ConfigMaps(f.ns).Get(t.Context(), "new", metav1.GetOptions{})
		if err != nil || there.Data["step"] != "patched" || there.Data["applied"] != "1" || len(there.Annotations) > 0 {
			t.Errorf("the cluster has %v with annotations %v, %v; want it patched and applied, and nothing of the view", there.Data, there.Annotations, err)
		}
		f.testDeletes(t, suite.Clientset(t, cfg), target, made.ResourceVersion)
		if _, err := f.on[other].CoreV1().ConfigMaps(f.ns).Get(t.Context(), "on-another", metav1.GetOptions{}); err != nil {
			t.Errorf("the object on %s: %v, want it untouched", other, err)
		}
	})
}

// testDeletes deletes ConfigMap new of a cluster, by preconditions and as a part of a
// collection.
func (f *fleet) testDeletes(t *testing.T, cs *kubernetes.Clientset, target, old string) {
	t.Helper()
	maps := cs.CoreV1().ConfigMaps(f.ns)
	for _, name := range []string{"both", "new"} {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err == nil || !strings.Contains(err.Error(), name+"@"+target) || apierrors.IsConflict(err) {
			t.Errorf("delete of %s without its cluster: %v, want it refused with %s@%s, and not as a conflict, which clients repeat", name, err, name, target)
		}
	}
	if err := maps.Delete(t.Context(), "new@"+target, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}); !apierrors.IsConflict(err) {
		t.Errorf("delete with an old version: %v, want a conflict", err)
	}
	now, err := maps.Get(t.Context(), "new", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "new@"+target, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &now.ResourceVersion, UID: ptr.To(now.UID)}}); err != nil {
		t.Error("delete with the version of get:", err)
	}
	f.makeMaps(t, target, "new")
	collection := metav1.ListOptions{FieldSelector: "metadata.name=new"}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, collection); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("delete of a collection without a cluster: %v, want 405", err)
	}
	collection.FieldSelector += ",metadata.cluster=" + target
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, collection); err != nil {
		t.Error("delete of a collection:", err)
	}
	if _, err := maps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after that: %v, want not found", err)
	}
}

// TestFleetStreams reads logs, runs commands, copies files and forwards ports of pods of
// the same name on all clusters. It disturbs nothing: what it makes lies in a namespace of
// its own.
func TestFleetStreams(t *testing.T) {
	f := newFleet(t)
	for _, cluster := range f.clusters {
		template := f.template(t, cluster)
		if _, err := f.on[cluster].CoreV1().Pods(f.ns).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "same"}, Spec: template.Spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, "the pod to log on "+cluster, func() error {
			// A pod that runs has not written its first line yet.
			log, err := f.on[cluster].CoreV1().Pods(f.ns).GetLogs("same", &corev1.PodLogOptions{}).DoRaw(t.Context())
			if err == nil && !strings.Contains(string(log), cluster) {
				err = fmt.Errorf("its log is %q", log)
			}
			return err
		})
	}
	installed.ForEachViewEndpoint(t, allView, func(t *testing.T, cfg *rest.Config) {
		k := newKubectl(t, cfg)
		for _, cluster := range f.clusters {
			pod := "same@" + cluster
			if out := k.run(t, "logs", "-n", f.ns, pod, "--tail=1"); !strings.Contains(out, cluster) {
				t.Errorf("logs of %s: %q, want a line of that cluster", pod, out)
			}
			if out := k.run(t, "exec", "-n", f.ns, pod, "--", "sh", "-c", `echo "$CLUSTER"`); strings.TrimSpace(out) != cluster {
				t.Errorf("exec in %s: %q, want the cluster's name", pod, out)
			}
			if out := k.feed(t, "over and back", "exec", "-i", "-n", f.ns, pod, "--", "head", "-c", "13"); out != "over and back" {
				t.Errorf("exec with input in %s: %q, want what was sent", pod, out)
			}
			f.copy(t, k, pod, cluster)
			f.forward(t, k, pod, cluster)
		}
		for _, args := range [][]string{{"logs", "same"}, {"exec", "same", "--", "true"}} {
			k.refused(t, []string{"same@" + f.clusters[0], "same@" + f.clusters[1]}, append([]string{"-n", f.ns}, args...)...)
		}
	})
}

// copy copies a file from a pod. To a pod it does on nodes only: without, no command in a
// pod learns that its input has ended.
func (f *fleet) copy(t *testing.T, k kubectl, pod, cluster string) {
	t.Helper()
	dir, want := t.TempDir(), "file of "+cluster
	to, from, there := filepath.Join(dir, "to"), filepath.Join(dir, "from"), f.ns+"/"+pod+":fleet-copy"
	if onNodes {
		if err := os.WriteFile(to, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		k.run(t, "cp", to, there)
	} else {
		k.run(t, "exec", "-n", f.ns, pod, "--", "sh", "-c", "printf '"+want+"' > fleet-copy")
	}
	if out, errs, err := k.try(t.Context(), "", "cp", there, from); err != nil {
		t.Fatalf("cp from %s: %v\n%s%s", pod, err, out, errs)
	}
	if got, err := os.ReadFile(from); err != nil || string(got) != want {
		t.Errorf("cp from %s: %q, %v; want %q", pod, got, err, want)
	}
	k.run(t, "exec", "-n", f.ns, pod, "--", "rm", "fleet-copy")
}

// forward asks the program behind a pod's port who it is.
func (f *fleet) forward(t *testing.T, k kubectl, pod, cluster string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
	defer cancel()
	cmd, err := installed.KubectlCommand(ctx, k.name, k.cfg, "port-forward", "-n", f.ns, pod, ":8080")
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || address == "" {
		t.Fatalf("port-forward to %s prints %q, %v; want an address", pod, line, err)
	}
	if body, err := plainhttp.Get(ctx, "http://"+address+"/"); err != nil || !strings.Contains(body, cluster) {
		t.Errorf("the port of %s answers %q, %v; want the cluster's name", pod, body, err)
	}
}

var (
	crds    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets = schema.GroupVersionResource{Group: "e2e.example.org", Version: "v1", Resource: "widgets"}
)

// makeWidgets makes a CRD on one cluster, and an object.
func (f *fleet) makeWidgets(t *testing.T, cluster string) {
	t.Helper()
	client, err := dynamic.NewForConfig(installed.Direct(cluster))
	if err != nil {
		t.Fatal(err)
	}
	definition := client.Resource(crds)
	_, err = definition.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.e2e.example.org"},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget", "shortNames": []any{"wdg"}},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "description": "Widget is what one cluster has.",
					"properties": map[string]any{"size": map[string]any{"type": "integer", "description": "Size is how large it is."}},
				}},
				"additionalPrinterColumns": []any{map[string]any{"name": "Size", "type": "integer", "jsonPath": ".size"}},
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = definition.Delete(context.Background(), "widgets.e2e.example.org", metav1.DeleteOptions{}) })
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "e2e.example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "size": int64(7)}}
	suite.Eventually(t, "the CRD to be served", func() error {
		_, err := client.Resource(widgets).Namespace(f.ns).Create(t.Context(), widget, metav1.CreateOptions{})
		return err
	})
	suite.Eventually(t, "the CRD in OpenAPI", func() error {
		got, err := suite.Ask(t.Context(), installed.Direct(cluster), suite.Request{Method: http.MethodGet, Path: "/openapi/v3/apis/e2e.example.org/v1"})
		if err == nil && got.Code != http.StatusOK {
			err = fmt.Errorf("answered %d", got.Code)
		}
		return err
	})
}

// TestFleetDiscovery finds what one cluster serves and others do not. It disturbs one
// cluster, which has a CRD for a while.
func TestFleetDiscovery(t *testing.T) {
	f := newFleet(t)
	having, lacking := f.clusters[1], f.clusters[0]
	f.makeWidgets(t, having)
	installed.MakeView(t, "e2e-lacking", map[string]any{"clusters": map[string]any{"names": []any{lacking}}})
	// What clusters serve is known for a minute, by user. This one has not asked yet.
	token := installed.MakeUser(t, "e2e-fleet-discovery", append(suite.MayUseViews(), suite.MayReach(suite.AllVerbs))...)
	for _, cluster := range f.clusters {
		installed.MayOn(t, cluster, "e2e-fleet-discovery", suite.Rule("*", "*", suite.AllVerbs))
	}
	for _, endpoint := range installed.ViewEndpoints(allView, token) {
		t.Run(endpoint.Name, func(t *testing.T) {
			k := newKubectl(t, endpoint.Cfg)
			var table string
			suite.Eventually(t, "the user's rights", func() (err error) {
				table, _, err = k.try(t.Context(), "", "get", "wdg", "-A")
				return err
			})
			wantSame(t, "get widgets", rows(t, table, "NAMESPACE", "CLUSTER", "NAME", "SIZE"), []string{f.ns + " " + having + " w 7"})
			resources := strings.Fields(k.run(t, "api-resources", "-o", "name"))
			for _, want := range []string{"pods", "deployments.apps", "widgets.e2e.example.org"} {
				if !slices.Contains(resources, want) {
					t.Errorf("api-resources lacks %s:\n%s", want, resources)
				}
			}
			if out := k.run(t, "explain", "widgets.size"); !strings.Contains(out, "Size is how large it is.") {
				t.Errorf("explain widgets.size prints %q, want its description", out)
			}
			if out := k.run(t, "explain", "pods.spec.containers"); !strings.Contains(out, "List of containers belonging to the pod") {
				t.Errorf("explain pods.spec.containers prints %q, want its description", out)
			}
			if out := k.run(t, "get", "widget", "-n", f.ns, "w", "-o", "jsonpath={.size}"); out != "7" {
				t.Errorf("get widget w: %q, want 7", out)
			}
			if out := k.run(t, "version", "-o", "json"); !strings.Contains(out, "serverVersion") {
				t.Errorf("version prints %q, want the clusters'", out)
			}
		})
	}
	for _, endpoint := range installed.ViewEndpoints("e2e-lacking", token) {
		newKubectl(t, endpoint.Cfg).refused(t, []string{"the server doesn't have a resource type"}, "get", "widgets", "-A")
	}
}
