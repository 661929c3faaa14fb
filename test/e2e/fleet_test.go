package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	views "open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// allView is the FleetView that the chart makes.
const allView = "all"

// fleet is a namespace on every managed cluster, of the same name on all.
type fleet struct {
	clusters []string // sorted, as a view has them
	on       map[string]*kubernetes.Clientset
	ns       string
}

// fleetLabel is on the objects that a scenario makes; clusters make others.
const fleetLabel = "e2e=fleet"

func newFleet(t *testing.T) *fleet {
	t.Helper()
	if len(installed.Clusters) < 2 {
		t.Skip("needs two managed clusters")
	}
	f := &fleet{clusters: slices.Sorted(slices.Values(installed.Clusters)), on: map[string]*kubernetes.Clientset{}}
	for _, cluster := range f.clusters {
		cs := suite.Clientset(t, installed.Direct(cluster))
		f.on[cluster] = cs
		if f.ns == "" {
			f.ns = suite.Scratch(t, cs)
			continue
		}
		if _, err := cs.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cs.CoreV1().Namespaces().Delete(context.Background(), f.ns, metav1.DeleteOptions{}) })
	}
	return f
}

// configMap is one as the scenarios make them, which says where it is.
func configMap(cluster, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"e2e": "fleet"}}, Data: map[string]string{"cluster": cluster}}
}

// makeMaps makes ConfigMaps on one cluster, not through a view.
func (f *fleet) makeMaps(t *testing.T, cluster string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := f.on[cluster].CoreV1().ConfigMaps(f.ns).Create(t.Context(), configMap(cluster, name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// patchMap changes a ConfigMap on its cluster, not through a view.
func (f *fleet) patchMap(t *testing.T, cluster, name, patch string) {
	t.Helper()
	if _, err := f.on[cluster].CoreV1().ConfigMaps(f.ns).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// clusterOf is the cluster that an object of a view is from.
func clusterOf(o metav1.Object) string { return o.GetAnnotations()[views.AnnotationCluster] }

// kubectl is the real one, as a client of a view.
type kubectl struct {
	cfg *rest.Config
	// name is for what it caches: each test has a cache of its own.
	name string
	// env is added to its environment.
	env []string
}

func newKubectl(t *testing.T, cfg *rest.Config) kubectl {
	return kubectl{cfg: cfg, name: "fleet-" + strings.ReplaceAll(t.Name(), "/", "-")}
}

// as is the same with the cache of a name.
func (k kubectl) as(name string) kubectl {
	k.name = name
	return k
}

func (k kubectl) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	cmd, err := installed.KubectlCommand(ctx, k.name, k.cfg, args...)
	if err == nil {
		cmd.Env = append(cmd.Env, k.env...)
	}
	return cmd, err
}

func (k kubectl) try(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, suite.Timeout)
	defer cancel()
	cmd, err := k.command(ctx, args...)
	if err != nil {
		return "", "", err
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// collisionWarning is what kubectl prints for lists in which several clusters have a name.
const collisionWarning = "Warning: objects of several clusters " + collision + ": use a view with names: Qualified for informers\n"

// run returns what kubectl prints. A warning is an error, except of names that several
// clusters have.
func (k kubectl) run(t *testing.T, args ...string) string {
	t.Helper()
	return k.feed(t, "", args...)
}

func (k kubectl) feed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, errs, err := k.try(t.Context(), stdin, args...)
	if err != nil || strings.ReplaceAll(errs, collisionWarning, "") != "" {
		t.Fatalf("kubectl %q: %v\n%s%s", args, err, out, errs)
	}
	return out
}

// refused wants kubectl to fail and to print words.
func (k kubectl) refused(t *testing.T, words []string, args ...string) {
	t.Helper()
	out, errs, err := k.try(t.Context(), "", args...)
	if err == nil {
		t.Errorf("kubectl %q succeeds, want it refused:\n%s", args, out)
	}
	for _, word := range words {
		if !strings.Contains(errs, word) {
			t.Errorf("kubectl %q prints %q, want a word about %q", args, errs, word)
		}
	}
}

// rows are the cells of some columns in a table of kubectl, sorted.
func rows(t *testing.T, table string, columns ...string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	// Columns are at least three blanks apart; values may have blanks.
	header := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(lines[0]), -1)
	var all []string
	for _, line := range lines[1:] {
		cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
		var row []string
		for _, column := range columns {
			i := slices.Index(header, column)
			if i < 0 || len(cells) != len(header) {
				t.Fatalf("no column %s, or not the cells of %q, in\n%s", column, header, table)
			}
			row = append(row, cells[i])
		}
		all = append(all, strings.Join(row, " "))
	}
	slices.Sort(all)
	return all
}

// wantSame compares two sorted lists.
func wantSame(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestFleetKubectlReads reads objects of all clusters with kubectl. It disturbs nothing:
// what it makes lies in a namespace of its own.
func TestFleetKubectlReads(t *testing.T) {
	releaseOnNodes(t)
	f := newFleet(t)
	first := f.clusters[0]
	f.makeMaps(t, first, "only")
	var maps, pods []string
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			maps = append(maps, cluster+" "+name)
		}
		web, err := f.on[cluster].CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(web.Items) == 0 {
			t.Fatalf("%d pods of Deployment web on %s, %v, want some", len(web.Items), cluster, err)
		}
		for _, pod := range web.Items {
			pods = append(pods, "default "+cluster+" "+pod.Name)
		}
	}
	maps = append(maps, first+" only")
	slices.Sort(maps)
	slices.Sort(pods)
	installed.ForEachViewEndpoint(t, allView, func(t *testing.T, cfg *rest.Config) {
		k := newKubectl(t, cfg)
		table := k.run(t, "get", "pods", "-A", "-l", "app=web")
		header := strings.Fields(strings.SplitN(table, "\n", 2)[0])
		wantSame(t, "columns of get pods -A", header, strings.Fields("NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE"))
		wantSame(t, "get pods -A", rows(t, table, "NAMESPACE", "CLUSTER", "NAME"), pods)
		list := []string{"get", "configmaps", "-n", f.ns, "-l", fleetLabel}
		wantSame(t, "get configmaps", rows(t, k.run(t, list...), "CLUSTER", "NAME"), maps)
		wantSame(t, "get configmaps --chunk-size=2", rows(t, k.run(t, append(list, "--chunk-size=2")...), "CLUSTER", "NAME"), maps)
		// In one piece: a cluster that is late has a page of its own, and no page has a name twice.
		out, errs, err := k.try(t.Context(), "", append(list, "--chunk-size=0", "-o", "json")...)
		if err != nil || errs != collisionWarning {
			t.Fatalf("get configmaps -o json: %v, and prints %q, want a warning of names that several clusters have", err, errs)
		}
		var objects corev1.ConfigMapList
		if err := json.Unmarshal([]byte(out), &objects); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range objects.Items {
			got = append(got, clusterOf(&o)+" "+o.Name)
			if o.Data["cluster"] != clusterOf(&o) {
				t.Errorf("object of %q says that it is of %q", o.Data["cluster"], clusterOf(&o))
			}
		}
		slices.Sort(got)
		wantSame(t, "get configmaps -o json", got, maps)
		testSelectors(t, k, f)
		const where = "jsonpath={.data.cluster}"
		for _, cluster := range f.clusters {
			if got := k.run(t, "get", "configmap", "-n", f.ns, "a@"+cluster, "-o", where); got != cluster {
				t.Errorf("get a@%s: an object of %q", cluster, got)
			}
		}
		if got := k.run(t, "get", "configmap", "-n", f.ns, "only", "-o", where); got != first {
			t.Errorf("get of a name that one cluster has: an object of %q, want %q", got, first)
		}
		k.refused(t, []string{"a@" + first, "a@" + f.clusters[1]}, "get", "configmap", "-n", f.ns, "a")
		k.refused(t, []string{"NotFound"}, "get", "configmap", "-n", f.ns, "none")
		k.refused(t, []string{"NotFound"}, "get", "configmap", "-n", f.ns, "only@"+f.clusters[1])
		k.refused(t, []string{"NotFound"}, "get", "configmap", "-n", f.ns, "a@nowhere")
	})
}

// testSelectors chooses objects and clusters by selectors.
func testSelectors(t *testing.T, k kubectl, f *fleet) {
	t.Helper()
	first, second := f.clusters[0], f.clusters[1]
	rest := func(name string) []string {
		var others []string
		for _, cluster := range f.clusters[1:] {
			others = append(others, cluster+" "+name)
		}
		return others
	}
	for selector, want := range map[string][]string{
		"metadata.name=a": append([]string{first + " a"}, rest("a")...),
		"metadata.name=a,metadata.cluster=" + second:      {second + " a@" + second},
		"metadata.cluster!=" + first + ",metadata.name=b": rest("b"),
		"metadata.name=c@" + second:                       {second + " c@" + second},
		"metadata.cluster=" + first + ",metadata.name!=a": {first + " b@" + first, first + " c@" + first, first + " only@" + first},
	} {
		table := k.run(t, "get", "configmaps", "-n", f.ns, "-l", fleetLabel, "--field-selector="+selector)
		wantSame(t, "field selector "+selector, rows(t, table, "CLUSTER", "NAME"), want)
	}
	k.refused(t, []string{"BadRequest"}, "get", "configmaps", "-n", f.ns, "--field-selector=data.x=y")
}

// TestFleetKubectlWrites changes objects of one cluster by NAME@CLUSTER, with kubectl. It
// disturbs nothing: what it makes lies in a namespace of its own.
func TestFleetKubectlWrites(t *testing.T) {
	releaseOnNodes(t)
	f := newFleet(t)
	target, other := f.clusters[0], f.clusters[1]
	f.makeMaps(t, other, "written")
	before, err := f.on[other].CoreV1().ConfigMaps(f.ns).Get(t.Context(), "written", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range f.clusters {
		f.makeDeployment(t, cluster)
	}
	there := f.on[target].CoreV1().ConfigMaps(f.ns)
	name := "written@" + target
	installed.ForEachViewEndpoint(t, allView, func(t *testing.T, cfg *rest.Config) {
		k := newKubectl(t, cfg)
		want := func(step string, data map[string]string) {
			t.Helper()
			got, err := there.Get(t.Context(), "written", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("after %s: %v", step, err)
			}
			if fmt.Sprint(got.Data) != fmt.Sprint(data) || clusterOf(got) != "" {
				t.Errorf("after %s the cluster has data %v and annotations %v, want %v and none of the view", step, got.Data, got.Annotations, data)
			}
		}
		manifest := func(value string) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"a":%q}}`, name, f.ns, value)
		}
		k.feed(t, manifest("created"), "create", "-f", "-")
		want("create", map[string]string{"a": "created"})
		k.run(t, "delete", "configmap", "-n", f.ns, name)
		k.feed(t, manifest("1"), "apply", "-f", "-")
		want("apply", map[string]string{"a": "1"})
		k.feed(t, manifest("2"), "apply", "-f", "-")
		want("the second apply", map[string]string{"a": "2"})
		k.feed(t, manifest("3"), "apply", "--server-side", "--force-conflicts", "-f", "-")
		want("apply --server-side", map[string]string{"a": "3"})
		k.run(t, "patch", "configmap", "-n", f.ns, name, "--type=merge", `--patch={"data":{"b":"4"}}`)
		want("patch", map[string]string{"a": "3", "b": "4"})
		k.run(t, "patch", "configmap", "-n", f.ns, name, "--type=json", `--patch=[{"op":"remove","path":"/data/b"}]`)
		want("JSON patch", map[string]string{"a": "3"})
		k.refused(t, []string{"written@" + target, "written@" + other}, "patch", "configmap", "-n", f.ns, "written", `--patch={"data":{"b":"4"}}`)
		k.run(t, "delete", "configmap", "-n", f.ns, name)
		k.refused(t, []string{"NotFound"}, "get", "configmap", "-n", f.ns, name)
		now, err := f.on[other].CoreV1().ConfigMaps(f.ns).Get(t.Context(), "written", metav1.GetOptions{})
		if err != nil || now.ResourceVersion != before.ResourceVersion {
			t.Errorf("the object of the same name on %s has changed: %v, %v", other, now, err)
		}
		k.run(t, "scale", "deployment", "-n", f.ns, "scaled@"+target, "--replicas=2")
		f.wantReplicas(t, target, 2)
		f.wantReplicas(t, other, 0)
		k.run(t, "scale", "deployment", "-n", f.ns, "scaled@"+target, "--replicas=0")
		f.wantReplicas(t, target, 0)
	})
}

// makeDeployment makes a Deployment of pods like those of Deployment web, without any.
func (f *fleet) makeDeployment(t *testing.T, cluster string) {
	t.Helper()
	template := f.template(t, cluster)
	template.Labels = map[string]string{"app": "scaled"}
	_, err := f.on[cluster].AppsV1().Deployments(f.ns).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "scaled"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// template is that of the pods of Deployment web.
func (f *fleet) template(t *testing.T, cluster string) corev1.PodTemplateSpec {
	t.Helper()
	web, err := f.on[cluster].AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return web.Spec.Template
}

func (f *fleet) wantReplicas(t *testing.T, cluster string, want int32) {
	t.Helper()
	got, err := f.on[cluster].AppsV1().Deployments(f.ns).Get(t.Context(), "scaled", metav1.GetOptions{})
	if err != nil || *got.Spec.Replicas != want {
		t.Errorf("the Deployment on %s has %d replicas, %v; want %d", cluster, *got.Spec.Replicas, err, want)
	}
}
