package chart

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func readCRD(t *testing.T, dir, crdFile string) apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile("../../charts/cluster-proxy/" + dir + "/" + crdFile)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
		t.Fatalf("reading %s/%s: %v", dir, crdFile, err)
	}
	return crd
}

// The first install takes the CRD from crds/, upgrades take it from the template.
// For Helm to take over the first one, it must carry the marks of the release.
func TestCRD(t *testing.T) {
	for _, crdFile := range []string{"managedproxyconfigurations.yaml", "fleetviews.yaml", "karmadaresourceregistries.yaml", "passes.yaml", "accesspolicies.yaml"} {
		t.Run(crdFile, func(t *testing.T) {
			installed, generated := readCRD(t, "crds", crdFile), readCRD(t, "files", crdFile)
			if diff := cmp.Diff(generated.Spec, installed.Spec); diff != "" {
				t.Errorf("crds/%s is out of date; run hack/update-crds.sh (-want +got):\n%s", crdFile, diff)
			}
			for key, want := range map[string]string{
				"helm.sh/resource-policy":        "keep",
				"meta.helm.sh/release-name":      release,
				"meta.helm.sh/release-namespace": namespace,
			} {
				if got := installed.Annotations[key]; got != want {
					t.Errorf("crds/%s: annotation %s is %q, want %q", crdFile, key, got, want)
				}
			}
			if got := installed.Labels["app.kubernetes.io/managed-by"]; got != "Helm" {
				t.Errorf("crds/%s: label app.kubernetes.io/managed-by is %q, want Helm", crdFile, got)
			}

			object := mustRender(t, "").byName["CustomResourceDefinition/"+generated.Name]
			if object == nil {
				t.Fatal("the template makes no CRD where none is")
			}
			upgraded := as[apiextensionsv1.CustomResourceDefinition](t, object)
			if diff := cmp.Diff(generated.Spec, upgraded.Spec); diff != "" {
				t.Errorf("the template changes the CRD (-want +got):\n%s", diff)
			}
			if upgraded.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Error("helm uninstall would delete the CRD, and with it every object of its kind")
			}
		})
	}
}
