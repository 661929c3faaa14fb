package chart

import (
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	release   = "cluster-proxy"
	namespace = "open-cluster-management-addon"
)

// load loads the chart with the registry of a release, which is the one value without a default.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir("../../charts/cluster-proxy")
	if err != nil {
		t.Fatalf("loading the chart: %v", err)
	}
	c.Values["registry"] = "registry.example.com/ocm"
	return c
}

// objects are what the chart makes, by "Kind/name", and what it says.
type objects struct {
	byName map[string]*unstructured.Unstructured
	notes  string
}

// render renders the chart as a first install does, with values as YAML.
func render(t *testing.T, c *chart.Chart, values string) (objects, error) {
	t.Helper()
	return renderFor(t, c, values, "v1.36.0")
}

// renderFor is render for a hub of another version of Kubernetes.
func renderFor(t *testing.T, c *chart.Chart, values, version string) (objects, error) {
	t.Helper()
	hub := chartutil.DefaultCapabilities.Copy()
	hub.KubeVersion.Version = version
	return renderWith(t, c, values, hub)
}

// renderWith is render for a hub with other APIs.
func renderWith(t *testing.T, c *chart.Chart, values string, hub *chartutil.Capabilities) (objects, error) {
	t.Helper()
	parsed := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &parsed); err != nil {
		t.Fatalf("reading the test's values: %v", err)
	}
	if err := chartutil.ProcessDependencies(c, parsed); err != nil {
		return objects{}, err
	}
	full, err := chartutil.ToRenderValues(c, parsed, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, hub)
	if err != nil {
		return objects{}, err
	}
	files, err := engine.Render(c, full)
	if err != nil {
		return objects{}, err
	}
	out := objects{byName: map[string]*unstructured.Unstructured{}}
	for name, content := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			out.notes = content
			continue
		}
		for document := range strings.SplitSeq("\n"+content, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				t.Fatalf("reading %s: %v\n%s", name, err, document)
			}
			if len(object.Object) == 0 {
				continue
			}
			key := object.GetKind() + "/" + object.GetName()
			if _, ok := out.byName[key]; ok {
				t.Fatalf("%s is made twice", key)
			}
			out.byName[key] = object
		}
	}
	return out, nil
}

func mustRender(t *testing.T, values string) objects {
	t.Helper()
	o, err := render(t, load(t), values)
	if err != nil {
		t.Fatalf("rendering with %q: %v", values, err)
	}
	return o
}

// as converts an object to its Go type, refusing fields that the type lacks.
func as[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &out, true); err != nil {
		t.Fatalf("reading %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return out
}

func (o objects) deployments(t *testing.T) []appsv1.Deployment {
	t.Helper()
	var out []appsv1.Deployment
	for _, object := range o.byName {
		if object.GetKind() == "Deployment" {
			out = append(out, as[appsv1.Deployment](t, object))
		}
	}
	return out
}

// rules are the RBAC rules that the chart makes, by "Kind/name".
func (o objects) rules(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	out := map[string][]rbacv1.PolicyRule{}
	for key, object := range o.byName {
		switch object.GetKind() {
		case "ClusterRole":
			out[key] = as[rbacv1.ClusterRole](t, object).Rules
		case "Role":
			out[key] = as[rbacv1.Role](t, object).Rules
		}
	}
	return out
}
