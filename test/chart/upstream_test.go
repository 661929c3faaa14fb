package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

// TestUpgradeFromUpstreamsRelease renders the chart with the values that helm
// upgrade --reuse-values leaves: upstream's own file, and none of this chart's.
func TestUpgradeFromUpstreamsRelease(t *testing.T) {
	content, err := os.ReadFile("testdata/upstream-v0.10.0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"", "{enableServiceProxy: true, userServer: {enabled: true}, replicas: 2}", "{enableServiceProxy: true, featureGates: {clusterProfileAccessProvider: true}}"} {
		c := load(t)
		c.Values = nil
		if err := yaml.Unmarshal(content, &c.Values); err != nil {
			t.Fatal(err)
		}
		o, err := render(t, c, set)
		if err != nil {
			t.Errorf("with %q: %v", set, err)
			continue
		}
		for _, deployment := range o.deployments(t) {
			args := deployment.Spec.Template.Spec.Containers[0].Args
			profiles, want := slices.Contains(args, "--feature-gates=ClusterProfile=true"), strings.Contains(set, "clusterProfileAccessProvider")
			if deployment.Name == "cluster-proxy-addon-manager" && profiles != want {
				t.Errorf("with %q the addon manager publishes cluster profiles: %v, want %v: %q", set, profiles, want, args)
			}
		}
	}
}

// TestServicesLeadToUpstreamsPods wants numbers: upstream's pods name no ports.
func TestServicesLeadToUpstreamsPods(t *testing.T) {
	for name, object := range mustRender(t, everything).byName {
		if object.GetKind() != "Service" {
			continue
		}
		for _, port := range as[corev1.Service](t, object).Spec.Ports {
			if port.TargetPort.IntValue() == 0 {
				t.Errorf("%s: port %d leads to %q, want a number", name, port.Port, port.TargetPort.String())
			}
		}
	}
}

// TestUpstreamsManagerHasNoRights wants no right bound to the account that
// upstream's addon manager runs as: from then on it changes nothing, while it still
// leads.
func TestUpstreamsManagerHasNoRights(t *testing.T) {
	o := mustRender(t, everything)
	for name, object := range o.byName {
		var subjects []rbacv1.Subject
		switch object.GetKind() {
		case "ClusterRoleBinding":
			subjects = as[rbacv1.ClusterRoleBinding](t, object).Subjects
		case "RoleBinding":
			subjects = as[rbacv1.RoleBinding](t, object).Subjects
		}
		for _, subject := range subjects {
			if subject.Kind == "ServiceAccount" && subject.Name == "cluster-proxy" {
				t.Errorf("%s gives rights to the account of upstream's addon manager", name)
			}
		}
	}
	if o.byName["ServiceAccount/cluster-proxy"] == nil {
		t.Error("the account is gone, and with it upstream's pods that use it until they are replaced")
	}
	for _, deployment := range o.deployments(t) {
		if account := deployment.Spec.Template.Spec.ServiceAccountName; account == "cluster-proxy" {
			t.Errorf("Deployment %s runs as upstream's addon manager", deployment.Name)
		}
	}
}

// liveHub answers lookups with what is on a hub.
type liveHub struct{ dynamic.Interface }

func (h liveHub) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return h.Resource(gv.WithResource(strings.ToLower(kind) + "s")), kind != "CustomResourceDefinition", err
}

// renderOn renders the chart as an upgrade does on a hub with these objects.
func renderOn(t *testing.T, live ...runtime.Object) (map[string]string, error) {
	t.Helper()
	c := load(t)
	values, err := chartutil.ToRenderValues(c, map[string]any{}, chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsUpgrade: true}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	return engine.RenderWithClientProvider(c, values, liveHub{dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), live...)})
}

// TestProxyAPIWaitsBesideUpstreams wants every replica of the proxy API to be there
// before the first of upstream's user servers ends, and no more than one in other
// upgrades.
func TestProxyAPIWaitsBesideUpstreams(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command []any
		want    string
	}{
		{"upstream's", []any{"/cluster-proxy"}, "100%"},
		{"this release's", nil, "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			container := map[string]any{"name": "user-server"}
			if tc.command != nil {
				container["command"] = tc.command
			}
			live := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "cluster-proxy-addon-user", "namespace": namespace},
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}},
			}}
			files, err := renderOn(t, live)
			if err != nil {
				t.Fatal(err)
			}
			if got := files["cluster-proxy/templates/proxy-api.yaml"]; !strings.Contains(got, "maxSurge: "+tc.want+"\n") {
				t.Errorf("maxSurge is not %s:\n%.800s", tc.want, got)
			}
		})
	}
}

// TestMultiClusterEnginesAddon wants the chart to refuse a hub whose addon belongs to
// MultiClusterEngine, and to leave its CRD to it.
func TestMultiClusterEnginesAddon(t *testing.T) {
	object := func(apiVersion, kind, name string, metadata map[string]any) *unstructured.Unstructured {
		metadata["name"] = name
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}}
	}
	addon := func(metadata map[string]any) *unstructured.Unstructured {
		return object("addon.open-cluster-management.io/v1alpha1", "ClusterManagementAddOn", "cluster-proxy", metadata)
	}
	label := map[string]any{"backplaneconfig.name": "engine"}
	owners := []any{map[string]any{"apiVersion": "multicluster.openshift.io/v1", "kind": "MultiClusterEngine", "name": "engine"}}
	for _, tc := range []struct {
		name    string
		addon   *unstructured.Unstructured
		wantErr bool
	}{
		{"by label and owner", addon(map[string]any{"labels": label, "ownerReferences": owners}), true},
		{"by label", addon(map[string]any{"labels": label}), true},
		{"by owner", addon(map[string]any{"ownerReferences": owners}), true},
		{"of another owner", addon(map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "engine"}}}), false},
		{"this release's", addon(map[string]any{"labels": map[string]any{"app.kubernetes.io/managed-by": "Helm"}}), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := renderOn(t, tc.addon)
			if tc.wantErr != (err != nil) || tc.wantErr && !strings.Contains(err.Error(), `belongs to MultiClusterEngine "engine"`) {
				t.Errorf("got error %v, want one that names the MultiClusterEngine: %v", err, tc.wantErr)
			}
		})
	}

	const crd = "managedproxyconfigurations.proxy.open-cluster-management.io"
	files, err := renderOn(t, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd, map[string]any{"labels": label}))
	if err != nil {
		t.Fatal(err)
	}
	if notes := files["cluster-proxy/templates/NOTES.txt"]; !strings.Contains(notes, "CRD "+crd+" belongs to MultiClusterEngine") || strings.Contains(notes, "label crd "+crd) {
		t.Errorf("the notes say to take the CRD from MultiClusterEngine:\n%s", notes)
	}
}
