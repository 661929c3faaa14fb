package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// useDeploymentConfig gives one cluster an AddOnDeploymentConfig of its own and
// takes it back when the test ends.
func useDeploymentConfig(t *testing.T, cluster string, spec addonv1alpha1.AddOnDeploymentConfigSpec) {
	t.Helper()
	ctx := context.Background()
	configs := installed.Addons.AddonV1alpha1().AddOnDeploymentConfigs(cluster)
	config, err := configs.Create(ctx, &addonv1alpha1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setConfigs := func(configs []addonv1alpha1.AddOnConfig) {
		suite.Eventually(t, "the addon's configuration changed", func() error {
			addons := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster)
			addon, err := addons.Get(ctx, identity.AddonName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			addon.Spec.Configs = configs
			_, err = addons.Update(ctx, addon, metav1.UpdateOptions{})
			return err
		})
	}
	setConfigs([]addonv1alpha1.AddOnConfig{{
		ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"},
		ConfigReferent:      addonv1alpha1.ConfigReferent{Namespace: cluster, Name: config.Name},
	}})
	t.Cleanup(func() {
		setConfigs(nil)
		_ = configs.Delete(ctx, config.Name, metav1.DeleteOptions{})
		suite.Eventually(t, "the ManifestWork without the configuration", func() error { return workWithout(ctx, cluster, config.Name) })
		suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(ctx, cluster) })
	})
}

// workWithout has an error until a cluster has applied a ManifestWork that was made
// without a configuration. The next test would otherwise begin while agents are
// still replaced.
func workWithout(ctx context.Context, cluster, config string) error {
	work, err := installed.AppliedWork(ctx, cluster)
	if err != nil {
		return err
	}
	if made := work.Annotations[workv1.ManifestConfigSpecHashAnnotationKey]; strings.Contains(made, config) {
		return fmt.Errorf("it was made with %s", made)
	}
	return nil
}

// TestDeploymentConfigReachesTheAgent places an agent, gives it an image and a
// proxy. It disturbs one cluster: its agents are replaced, twice.
func TestDeploymentConfigReachesTheAgent(t *testing.T) {
	cluster := installed.Clusters[0]
	useDeploymentConfig(t, cluster, addonv1alpha1.AddOnDeploymentConfigSpec{
		NodePlacement: &addonv1alpha1.NodePlacement{
			NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
			Tolerations:  []corev1.Toleration{{Key: "e2e", Operator: corev1.TolerationOpExists}},
		},
		ProxyConfig: addonv1alpha1.ProxyConfig{NoProxy: "127.0.0.1,e2e.example.com"},
		Registries:  []addonv1alpha1.ImageMirror{{Source: "quay.io/open-cluster-management", Mirror: "mirror.example.com/ocm"}},
	})
	suite.Eventually(t, "the ManifestWork to follow", func() error {
		work, err := installed.DeployWork(t.Context(), cluster)
		if err != nil {
			return err
		}
		for _, want := range []string{`"kubernetes.io/os":"linux"`, `"key":"e2e"`, "e2e.example.com", "mirror.example.com/ocm/"} {
			if !strings.Contains(work, want) {
				return fmt.Errorf("the work does not hold %q", want)
			}
		}
		return nil
	})
}
