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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
)

// TestFleetStreams reads logs, runs commands, copies files and forwards ports of pods of
// the same name on all clusters. It disturbs nothing: what it makes lies in a namespace of
// its own.
func TestFleetStreams(t *testing.T) {
	releaseOnNodes(t)
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
	releaseOnNodes(t)
	f := newFleet(t)
	having, lacking := f.clusters[1], f.clusters[0]
	f.makeWidgets(t, having)
	installed.MakeView(t, "e2e-lacking", map[string]any{"clusters": map[string]any{"names": []any{lacking}}})
	// The view knows for a minute, by user, what clusters serve. This one has not asked yet.
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
