//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package addonmanager

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonfake "open-cluster-management.io/api/client/addon/clientset/versioned/fake"
	clusterfake "open-cluster-management.io/api/client/cluster/clientset/versioned/fake"
	workfake "open-cluster-management.io/api/client/work/clientset/versioned/fake"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

const testSigner = "example.org/agents"

var testConfigs = schema.GroupVersionResource{Group: "proxy.open-cluster-management.io", Version: "v1alpha1", Resource: "managedproxyconfigurations"}

// whole is an agent with a part for each controller.
type whole struct{}

func (whole) Manifests(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	return []runtime.Object{&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "agent"}}}, nil
}

func (whole) GetAgentAddonOptions() agent.AgentAddonOptions {
	return agent.AgentAddonOptions{
		AddonName: identity.AddonName, SupportedConfigGVRs: []schema.GroupVersionResource{testConfigs},
		Registration: &agent.RegistrationOption{
			CSRConfigurations: func(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn) ([]addonv1alpha1.RegistrationConfig, error) {
				return []addonv1alpha1.RegistrationConfig{{SignerName: testSigner}}, nil
			},
			CSRApproveCheck: func(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, *certificatesv1.CertificateSigningRequest) bool {
				return true
			},
			CSRSign: func(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, *certificatesv1.CertificateSigningRequest) ([]byte, error) {
				return []byte("signed"), nil
			},
		},
	}
}

// seen is what the hub has.
type seen struct {
	addon      *addonv1alpha1.ManagedClusterAddOn
	management *addonv1alpha1.ClusterManagementAddOn
	request    *certificatesv1.CertificateSigningRequest
}

// TestEachControllerWorks wants from each of addon-framework's controllers what the addon has it
// for: newFramework calls their constructors, which addon-framework may change in any release.
func TestEachControllerWorks(t *testing.T) {
	const cluster = "cluster1"
	group := addonv1alpha1.ConfigGroupResource{Group: testConfigs.Group, Resource: testConfigs.Resource}
	desired := func() *addonv1alpha1.ConfigSpecHash {
		return &addonv1alpha1.ConfigSpecHash{ConfigReferent: addonv1alpha1.ConfigReferent{Name: "cluster-proxy"}}
	}
	configuration := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": testConfigs.GroupVersion().String(), "kind": "ManagedProxyConfiguration",
		"metadata": map[string]any{"name": "cluster-proxy", "generation": int64(7)}, "spec": map[string]any{"a": "b"},
	}}
	hub := hubClients{
		kube: kubefake.NewClientset(&certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "addon-request", Labels: map[string]string{addonv1alpha1.AddonLabelKey: identity.AddonName, clusterv1.ClusterNameLabelKey: cluster}},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: testSigner},
		}),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{testConfigs: "ManagedProxyConfigurationList"}, configuration),
		works:    workfake.NewSimpleClientset(),
		clusters: clusterfake.NewSimpleClientset(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}),
		addons: addonfake.NewSimpleClientset(
			&addonv1alpha1.ManagedClusterAddOn{
				ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: identity.AddonName, OwnerReferences: []metav1.OwnerReference{{Kind: "ClusterManagementAddOn", Name: identity.AddonName}}},
				Status: addonv1alpha1.ManagedClusterAddOnStatus{ConfigReferences: []addonv1alpha1.ConfigReference{{
					ConfigGroupResource: group, ConfigReferent: addonv1alpha1.ConfigReferent{Name: "cluster-proxy"}, DesiredConfig: desired(),
				}}},
			},
			&addonv1alpha1.ClusterManagementAddOn{
				ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Annotations: map[string]string{addonv1alpha1.AddonLifecycleAnnotationKey: addonv1alpha1.AddonLifecycleSelfManageAnnotationValue}},
				Status:     addonv1alpha1.ClusterManagementAddOnStatus{DefaultConfigReferences: []addonv1alpha1.DefaultConfigReference{{ConfigGroupResource: group, DesiredConfig: desired()}}},
			}),
	}
	startFramework(t, hub, whole{})
	for controller, done := range map[string]func(seen) bool{
		"agentdeploy": func(s seen) bool {
			works, err := hub.works.WorkV1().ManifestWorks(cluster).List(t.Context(), metav1.ListOptions{})
			return err == nil && len(works.Items) == 1
		},
		"registration": func(s seen) bool {
			return len(s.addon.Status.Registrations) == 1 && s.addon.Status.Registrations[0].SignerName == testSigner
		},
		"addonconfig": func(s seen) bool {
			return s.addon.Status.ConfigReferences[0].LastObservedGeneration == 7
		},
		"csr approving": func(s seen) bool {
			return len(s.request.Status.Conditions) == 1 && s.request.Status.Conditions[0].Type == certificatesv1.CertificateApproved
		},
		"csr signing": func(s seen) bool {
			return string(s.request.Status.Certificate) == "signed"
		},
		"cmamanagedby": func(s seen) bool {
			return s.management.Annotations[addonv1alpha1.AddonLifecycleAnnotationKey] == ""
		},
		"cmaconfig": func(s seen) bool {
			return s.management.Status.DefaultConfigReferences[0].DesiredConfig.SpecHash != ""
		},
	} {
		wait.Poll{Every: 10 * time.Millisecond, For: time.Minute}.Success(t, "the work of "+controller, func() error {
			addon, err := hub.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
			management, err2 := hub.addons.AddonV1alpha1().ClusterManagementAddOns().Get(t.Context(), identity.AddonName, metav1.GetOptions{})
			request, err3 := hub.kube.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "addon-request", metav1.GetOptions{})
			if err := errors.Join(err, err2, err3); err != nil {
				return err
			}
			if !done(seen{addon, management, request}) {
				return errors.New("it has not done what it is for")
			}
			return nil
		})
	}
}

// constructed finds the constructors of addon-framework's controllers that a file calls.
var constructed = regexp.MustCompile(`\b[a-z]+\.New\w+Controller\(`)

// TestFrameworkControllers wants framework.go to run the controllers that addon-framework's own manager
// runs. The manager has no number of workers to set, and framework.go is written after its StartWithInformers:
// a release that adds, removes or renames a controller has to be followed there.
func TestFrameworkControllers(t *testing.T) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/addon-framework")
	out, err := list.Output()
	if err != nil {
		t.Fatal("finding addon-framework:", err)
	}
	calls := func(file string) []string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := constructed.FindAllString(string(content), -1)
		slices.Sort(found)
		return slices.Compact(found)
	}
	theirs := calls(filepath.Join(strings.TrimSpace(string(out)), "pkg", "addonmanager", "base_manager.go"))
	if ours := calls("framework.go"); len(theirs) == 0 || !slices.Equal(ours, theirs) {
		t.Errorf("framework.go runs %q, addon-framework runs %q", ours, theirs)
	}
}
