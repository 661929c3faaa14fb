package diagnose

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// installation is what a hub has stored of the addon.
type installation struct {
	agentImage  string
	deployments []appsv1.Deployment
	// applied says how many clusters have applied a configuration with an image; "" is none.
	applied []appliedBy
	// refused are paths that the user may not read.
	refused []string
}

type appliedBy struct {
	image    string
	clusters int
}

func deploymentOf(label, value, image string, updated, of int32) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: value}},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}},
		Status:     appsv1.DeploymentStatus{UpdatedReplicas: updated, Replicas: of},
	}
}

// ofRelease are the Deployments of a hub.
func ofRelease(tag string) (deployments []appsv1.Deployment) {
	for _, p := range hubParts {
		deployments = append(deployments, deploymentOf(p.label, p.value, "reg.example:5000/cluster-proxy:"+tag, 2, 2))
	}
	return deployments
}

func configurationOf(image string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "ManagedProxyConfiguration", "metadata": map[string]any{"name": "cluster-proxy"},
		"spec": map[string]any{"proxyServer": map[string]any{"namespace": "addon", "replicas": int64(2)}, "proxyAgent": map[string]any{"image": image}},
	}}
}

func (i installation) start(t *testing.T) (kubeconfig string) {
	t.Helper()
	return clitest.FakeHubWith(t, func(serve func(string, int, any)) {
		answers := map[string]any{"/apis/apps/v1/namespaces/addon/deployments": appsv1.DeploymentList{Items: i.deployments}}
		list := map[string]any{"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "ManagedProxyConfigurationList", "items": []any{}}
		if i.agentImage != "" {
			list["items"] = []any{configurationOf(i.agentImage).Object}
		}
		answers[cli.ConfigurationsPath] = list
		addons := addonv1alpha1.ManagedClusterAddOnList{Items: []addonv1alpha1.ManagedClusterAddOn{{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: "c"}}}}
		for _, applied := range i.applied {
			for range applied.clusters {
				addon := addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy", Namespace: fmt.Sprintf("c%d", len(addons.Items))}}
				if applied.image != "" {
					configuration := configurationOf(applied.image)
					hash, err := utils.GetSpecHash(&configuration)
					if err != nil {
						t.Fatal(err)
					}
					addon.Status.ConfigReferences = []addonv1alpha1.ConfigReference{{
						ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: "proxy.open-cluster-management.io", Resource: "managedproxyconfigurations"},
						LastAppliedConfig:   &addonv1alpha1.ConfigSpecHash{SpecHash: hash},
					}}
				}
				addons.Items = append(addons.Items, addon)
			}
		}
		answers[cli.AddonAPI+"/managedclusteraddons"] = addons
		for path, answer := range answers {
			if slices.Contains(i.refused, path) {
				serve(path, 403, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "not for ann"})
				continue
			}
			serve(path, 200, answer)
		}
	})
}

func TestVersion(t *testing.T) {
	const image = "reg.example:5000/cluster-proxy:v2"
	rolling := ofRelease("v2")
	rolling[1].Status.UpdatedReplicas = 1
	mixed := ofRelease("v2")
	mixed[2] = ofRelease("v1")[2]
	for name, test := range map[string]struct {
		hub         installation
		out, errOut []string // lines, with single spaces
		notGood     bool
		fails       string // the error, if the versions are not known
	}{
		"all the same": {hub: installation{agentImage: image, deployments: ofRelease("v2"), applied: []appliedBy{{image, 5000}}},
			out:    []string{"addon manager v2 2 of 2 pods", "proxy server v2 2 of 2 pods", "proxy API v2 2 of 2 pods", "proxy agent v2 5000 clusters"},
			errOut: []string{"The parts whose version is known do not differ."}},
		"a release, which names its image by tag and digest": {hub: installation{agentImage: image + "@sha256:12", deployments: ofRelease("v2@sha256:12"), applied: []appliedBy{{image + "@sha256:12", 1}}},
			out:    []string{"proxy API v2 2 of 2 pods", "proxy agent v2 1 cluster"},
			errOut: []string{"The parts whose version is known do not differ."}},
		"clusters that lag": {notGood: true, hub: installation{agentImage: image, deployments: ofRelease("v2"), applied: []appliedBy{{image, 3}, {"reg.example/cluster-proxy:v1", 7}, {"", 1}}},
			out: []string{"proxy agent not known 7 clusters, because what was applied there is not the present configuration", "proxy agent v2 3 clusters",
				"proxy agent not known 1 cluster, because no configuration has been applied there yet"},
			errOut: []string{"Skew: agents of 7 clusters may differ, because what was applied there is not the present configuration: c4, c5, c6, c7, c8 and 2 more; see: kubectl get managedclusteraddon -n c4 cluster-proxy -o yaml"}},
		"a rollout goes on": {notGood: true, hub: installation{agentImage: image, deployments: rolling}, out: []string{"proxy server v2 1 of 2 pods", "proxy agent not known because no cluster has the addon"},
			errOut: []string{"Skew: 1 of 2 pods of the proxy server do not have version v2 yet; see: kubectl get pods -A -l open-cluster-management.io/addon=cluster-proxy"}},
		"parts of the hub differ": {notGood: true, hub: installation{agentImage: image, deployments: mixed},
			errOut: []string{"Skew: parts of the hub differ: addon manager v2, proxy server v2, proxy API v1, fleet index v2; helm upgrade with one tag for all makes them one"}},
		"agents of another image": {notGood: true, hub: installation{agentImage: "x/cluster-proxy@sha256:12", deployments: ofRelease("v2"), applied: []appliedBy{{"x/cluster-proxy@sha256:12", 2}}},
			out:    []string{"proxy agent sha256:12 2 clusters"},
			errOut: []string{"Skew: agents of 2 clusters have version sha256:12, which the hub does not have: value proxyAgentImage of the chart names it"}},
		"may not read the configuration": {fails: "reading the configuration: not for ann; --client shows", hub: installation{agentImage: image, refused: []string{cli.ConfigurationsPath}}},
		"may read nothing but that":      {fails: "no version is known but the plugin's", hub: installation{agentImage: image, refused: []string{"/apis/apps/v1/namespaces/addon/deployments", cli.AddonAPI + "/managedclusteraddons"}}},
		"may not list addons": {hub: installation{agentImage: image, deployments: ofRelease("v2"), refused: []string{cli.AddonAPI + "/managedclusteraddons"}},
			out: []string{"proxy API v2 2 of 2 pods", "proxy agent not known because ManagedClusterAddOns cannot be listed: not for ann"}},
		"may not read Deployments": {hub: installation{agentImage: image, applied: []appliedBy{{image, 1}}, refused: []string{"/apis/apps/v1/namespaces/addon/deployments"}},
			out: []string{"parts of the hub not known because Deployments cannot be listed: not for ann", "proxy agent v2 1 cluster"}},
		"no configuration": {fails: "there is no ManagedProxyConfiguration: is the chart installed?"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, test.hub.start(t), "version")
			if errors.Is(err, cli.ErrNotGood) != test.notGood || (err != nil) != (test.notGood || test.fails != "") || test.fails != "" && !strings.HasPrefix(err.Error(), test.fails) {
				t.Errorf("error %v, want errNotGood: %v, or %q", err, test.notGood, test.fails)
			}
			if said := strings.Count(out+errOut, "not for ann"); said > len(test.hub.refused) {
				t.Errorf("one refusal is said %d times:\n%s%s", said, out, errOut)
			}
			clitest.WantLines(t, out, test.out)
			clitest.WantLines(t, errOut, test.errOut)
		})
	}
}

func TestVersionAsJSON(t *testing.T) {
	const image = "reg.example/cluster-proxy:v2"
	release = "v1"
	t.Cleanup(func() { release = "" })
	out, _, err := run(t, installation{agentImage: image, deployments: ofRelease("v2")[:1], applied: []appliedBy{{image, 1}}}.start(t), "version", "-o", "json")
	if !errors.Is(err, cli.ErrNotGood) {
		t.Fatalf("error %v, want errNotGood: parts differ", err)
	}
	var got versions
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := versions{TypeMeta: newVersions().TypeMeta, Parts: []part{
		{Part: "plugin", Version: "v1"}, {Part: "addon manager", Version: "v2", Image: "reg.example:5000/cluster-proxy:v2", Pods: 2, PodsOf: 2},
		{Part: "proxy server", Because: "the addon's namespace has no such Deployment"}, {Part: "proxy API", Because: "the addon's namespace has no such Deployment"},
		{Part: "proxy agent", Version: "v2", Image: image, Clusters: []string{"c1"}},
	}, Skew: []string{"the plugin is v1 and the hub v2: take the plugin of the hub's release"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
