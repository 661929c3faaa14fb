package agentaddon

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// upstreamsNamespace is the API server's default of agentInstallNamespace.
const upstreamsNamespace = "open-cluster-management-agent-addon"

// TestUpstreamsVariables takes those that upstream documents: a cluster that has
// them is not cut off.
func TestUpstreamsVariables(t *testing.T) {
	for _, tc := range []struct {
		name        string
		variables   []addonv1alpha1.CustomizedVariable
		wantIgnored []string
		wantRefused bool // of the hub's users
	}{
		{"none", nil, nil, false},
		{"both", []addonv1alpha1.CustomizedVariable{{Name: "serviceDomain", Value: "svc.example.org"}, {Name: "enableImpersonation", Value: "true"}}, []string{"serviceDomain", "enableImpersonation"}, false},
		{"hub users are not let in", []addonv1alpha1.CustomizedVariable{{Name: "enableImpersonation", Value: "false"}}, nil, true},
		{"what upstream does not take for true", []addonv1alpha1.CustomizedVariable{{Name: "enableImpersonation", Value: "yes"}}, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &values{}
			if err := applyVariables(v, tc.variables); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantIgnored, v.ignored); diff != "" {
				t.Errorf("ignored variables (-want +got):\n%s", diff)
			}
			if refused := slices.Contains(v.Args, "--enable-impersonation=false"); refused != tc.wantRefused {
				t.Errorf("users of the hub are refused: %v, want %v", refused, tc.wantRefused)
			}
		})
	}
}

// TestFormerAgentsKeepWhatTheyNeed renders a cluster's manifests while upstream's proxy
// servers serve, and when the move is over.
func TestFormerAgentsKeepWhatTheyNeed(t *testing.T) {
	servers := func(command string) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: hubNamespace},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "proxy-server", Command: []string{command}}},
			}}},
		}
	}
	spec := &addonv1alpha1.AddOnDeploymentConfigSpec{CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "serviceDomain", Value: "svc.example.org"}}}
	for _, tc := range []struct {
		name, command string
		want          []string
	}{
		{"upstream's proxy servers serve", "/proxy-server", []string{
			"Service/cluster1 kubernetes.default.svc.example.org", "ClusterRole/cluster-proxy-addon-agent-impersonator",
			"ClusterRoleBinding/cluster-proxy-addon-agent-impersonator:open-cluster-management-cluster-proxy",
		}},
		{"the move is over", "/cluster-proxy", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hostname := &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: v1alpha1.EntryPointTypeHostname, Hostname: &v1alpha1.EntryPointHostname{Value: "hub.example.com"}}
			_, objects, err := render(t, "cluster1", configuration(hostname), spec, servers(tc.command))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, object := range objects {
				switch o := object.(type) {
				case *corev1.Service:
					got = append(got, "Service/"+o.Name+" "+o.Spec.ExternalName)
				case *rbacv1.ClusterRole:
					if strings.HasPrefix(o.Name, "cluster-proxy-addon-agent") {
						got = append(got, "ClusterRole/"+o.Name)
					}
				case *rbacv1.ClusterRoleBinding:
					if strings.HasPrefix(o.Name, "cluster-proxy-addon-agent") {
						got = append(got, "ClusterRoleBinding/"+o.Name)
					}
				}
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects of upstream (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUpstreamsAgentFindsNoCertificateOfOurs wants agents of this release to have their
// certificate in a Secret that upstream's agents do not mount: a volume that a kubelet
// has filled before OCM replaces a Secret of that name stays as it is for a minute, and
// upstream's agent reads its certificate once.
func TestUpstreamsAgentFindsNoCertificateOfOurs(t *testing.T) {
	// OCM makes the name of the addon's and the signer's.
	made := identity.AddonName + "-" + strings.ReplaceAll(identity.AgentSigner, "/", "-") + "-client-cert"
	const upstreams = "cluster-proxy-open-cluster-management.io-proxy-agent-signer-client-cert"
	deployment, _, err := render(t, "cluster1", configuration(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.Name != "certificate" {
			continue
		}
		if got := volume.Secret.SecretName; got != made || got != identity.AgentCertificateSecret || got == upstreams {
			t.Errorf("agents mount Secret %q, the name is %q, OCM makes %q; want three times the same", got, identity.AgentCertificateSecret, made)
		}
		return
	}
	t.Error("agents mount no certificate")
}

// TestAgentStaysInItsNamespace wants an agent that upstream installed in OCM's own
// default to stay there. It asks as addon-framework does: with OCM's default in the
// status, whatever the stored addon says.
func TestAgentStaysInItsNamespace(t *testing.T) {
	for _, tc := range []struct{ name, asked, is, want string }{
		{"nothing is asked for", "", "", identity.DefaultAgentNamespace},
		{"another one", "elsewhere", "", "elsewhere"},
		{"a new cluster", upstreamsNamespace, "", identity.DefaultAgentNamespace},
		{"one that upstream served", upstreamsNamespace, upstreamsNamespace, upstreamsNamespace},
		{"one that upstream served elsewhere", upstreamsNamespace, identity.DefaultAgentNamespace, identity.DefaultAgentNamespace},
		{"what a cluster says of itself", upstreamsNamespace, "kube-system", identity.DefaultAgentNamespace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := addonv1alpha1.Install(scheme); err != nil {
				t.Fatal(err)
			}
			reference := addonv1alpha1.AddOnConfig{
				ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: utils.AddOnDeploymentConfigGVR.Group, Resource: utils.AddOnDeploymentConfigGVR.Resource},
				ConfigReferent:      addonv1alpha1.ConfigReferent{Name: "config", Namespace: "cluster1"},
			}
			stored := &addonv1alpha1.ManagedClusterAddOn{
				ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: "cluster1"},
				Spec:       addonv1alpha1.ManagedClusterAddOnSpec{Configs: []addonv1alpha1.AddOnConfig{reference}},
				Status: addonv1alpha1.ManagedClusterAddOnStatus{Namespace: tc.is, ConfigReferences: []addonv1alpha1.ConfigReference{{
					ConfigGroupResource: reference.ConfigGroupResource,
					DesiredConfig:       &addonv1alpha1.ConfigSpecHash{ConfigReferent: reference.ConfigReferent, SpecHash: "x"},
				}}},
			}
			a := &Addon{
				Reader:            fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored.DeepCopy()).Build(),
				DeploymentConfigs: oneConfig{spec: &addonv1alpha1.AddOnDeploymentConfigSpec{AgentInstallNamespace: tc.asked}},
				InstallNamespace:  identity.DefaultAgentNamespace,
			}
			stored.Status.Namespace = upstreamsNamespace
			if got, err := a.installNamespace(stored); err != nil || got != tc.want {
				t.Errorf("the namespace is %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// TestNothingIsEnforcedInTheNamespace wants no profile of Pod Security in a
// namespace that may be shared, or go back to upstream.
func TestNothingIsEnforcedInTheNamespace(t *testing.T) {
	_, objects, err := render(t, "cluster1", configuration(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if namespace, ok := object.(*corev1.Namespace); ok && namespace.Labels["pod-security.kubernetes.io/enforce"] != "" {
			t.Errorf("namespace %s has labels %v; want no pod-security.kubernetes.io/enforce", namespace.Name, namespace.Labels)
		}
	}
}
