//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package agentaddon

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestClustersDoNotChooseConfigurations lets a cluster write the status of its
// addon, as OCM does.
func TestClustersDoNotChooseConfigurations(t *testing.T) {
	deployments := addonv1alpha1.ConfigGroupResource{Group: utils.AddOnDeploymentConfigGVR.Group, Resource: utils.AddOnDeploymentConfigGVR.Resource}
	proxies := addonv1alpha1.ConfigGroupResource{Group: configurationGVR.Group, Resource: configurationGVR.Resource}
	config := func(kind addonv1alpha1.ConfigGroupResource, namespace, name string) addonv1alpha1.AddOnConfig {
		return addonv1alpha1.AddOnConfig{ConfigGroupResource: kind, ConfigReferent: addonv1alpha1.ConfigReferent{Namespace: namespace, Name: name}}
	}
	hash := func(namespace, name string) *addonv1alpha1.ConfigSpecHash {
		return &addonv1alpha1.ConfigSpecHash{ConfigReferent: addonv1alpha1.ConfigReferent{Namespace: namespace, Name: name}, SpecHash: "x"}
	}
	management := &addonv1alpha1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName},
		Spec: addonv1alpha1.ClusterManagementAddOnSpec{
			SupportedConfigs: []addonv1alpha1.ConfigMeta{{ConfigGroupResource: deployments, DefaultConfig: &addonv1alpha1.ConfigReferent{Namespace: "hub", Name: "default"}}},
			InstallStrategy: addonv1alpha1.InstallStrategy{Placements: []addonv1alpha1.PlacementStrategy{
				{Configs: []addonv1alpha1.AddOnConfig{config(deployments, "hub", "placed")}},
			}},
		},
		Status: addonv1alpha1.ClusterManagementAddOnStatus{InstallProgressions: []addonv1alpha1.InstallProgression{{
			ConfigReferences: []addonv1alpha1.InstallConfigReference{{ConfigGroupResource: deployments, LastAppliedConfig: hash("hub", "before")}},
		}}},
	}
	scheme := runtime.NewScheme()
	if err := addonv1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	a := &Addon{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(management).Build()}
	for _, tc := range []struct {
		name    string
		status  addonv1alpha1.AddOnConfig
		wantErr string
	}{
		{"the addon's spec", config(deployments, "cluster1", "own"), ""},
		{"the default", config(deployments, "hub", "default"), ""},
		{"a placement's", config(deployments, "hub", "placed"), ""},
		{"what a rollout comes from", config(deployments, "hub", "before"), ""},
		{"the default proxy configuration", config(proxies, "", identity.AddonName), ""},
		{"another tenant's", config(deployments, "cluster2", "own"), `"own" of namespace "cluster2"`},
		{"another proxy configuration", config(proxies, "", "with-port-forward"), `"with-port-forward"`},
		{"somebody else's kind", config(addonv1alpha1.ConfigGroupResource{Group: "example.org", Resource: "things"}, "a", "b"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := a.checkReferences(t.Context(), &addonv1alpha1.ManagedClusterAddOn{
				Spec: addonv1alpha1.ManagedClusterAddOnSpec{Configs: []addonv1alpha1.AddOnConfig{config(deployments, "cluster1", "own")}},
				Status: addonv1alpha1.ManagedClusterAddOnStatus{ConfigReferences: []addonv1alpha1.ConfigReference{
					{ConfigGroupResource: tc.status.ConfigGroupResource, DesiredConfig: hash(tc.status.Namespace, tc.status.Name)},
				}},
			})
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want an error that says %q", err, tc.wantErr)
			}
		})
	}
}
