//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package agentaddon

import (
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

func hostname(name string) *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint {
	return &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: v1alpha1.EntryPointTypeHostname, Port: 8091, Hostname: &v1alpha1.EntryPointHostname{Value: name}}
}

func agentCA(t *testing.T) *corev1.Secret {
	t.Helper()
	pair, err := pki.NewCA("agents", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: certificates.AgentSignerSecret}, Data: map[string][]byte{"ca.crt": pair.CertPEM, "ca.key": pair.KeyPEM}}
}

// register is what an agent is told to ask for.
func register(t *testing.T, config *v1alpha1.ManagedProxyConfiguration, ca *corev1.Secret) ([]addonv1alpha1.RegistrationConfig, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config)
	if ca != nil {
		builder = builder.WithObjects(ca)
	}
	reader := builder.Build()
	a := &Addon{Reader: reader, Certificates: certificates.Store{Client: reader, Namespace: hubNamespace, BundleNamespace: hubNamespace}}
	if a.registration().PermissionConfig != nil {
		t.Error("agents are given rights on the hub")
	}
	return a.csrConfigurations(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "uid1"}},
		&addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: "cluster1"}})
}

// An agent has a credential of the hub in PortForward mode only.
func TestHubCredentialIsForPortForwardOnly(t *testing.T) {
	for _, test := range []struct {
		entrypoint *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint
		want       []string
	}{
		{hostname("hub.example.com"), []string{identity.AgentSigner}},
		{&v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: v1alpha1.EntryPointTypeLoadBalancerService}, []string{identity.AgentSigner}},
		{nil, []string{identity.AgentSigner, certificatesv1.KubeAPIServerClientSignerName}},
	} {
		configs, err := register(t, configuration(test.entrypoint), agentCA(t))
		if err != nil {
			t.Fatal(err)
		}
		var signers []string
		for _, c := range configs {
			signers = append(signers, c.SignerName)
		}
		if !slices.Equal(signers, test.want) {
			t.Errorf("with entrypoint %+v agents ask %v, want %v", test.entrypoint, signers, test.want)
		}
	}
}

// Another CA changes what agents ask for, so that OCM's agent asks at once; the
// same CA never does.
func TestAnotherCAIsAnotherSubject(t *testing.T) {
	one, two := agentCA(t), agentCA(t)
	subject := func(ca *corev1.Secret) string {
		configs, err := register(t, configuration(hostname("h")), ca)
		if err != nil {
			t.Fatal(err)
		}
		if units := configs[0].Subject.OrganizationUnits; len(units) == 2 && units[1] == identity.ClusterUnit("uid1") {
			return units[0]
		}
		t.Fatalf("subject is %+v; want two units, the second one of the cluster's UID", configs[0].Subject)
		return ""
	}
	first := subject(one)
	if again := subject(one); first != again || first == subject(two) {
		t.Errorf("the subject does not say which CA signs: %q, then %q", first, again)
	}
	if configs, err := register(t, configuration(hostname("h")), nil); err == nil {
		t.Errorf("without a CA agents are told %v; OCM would have them ask for nothing", configs)
	}
}

func TestAgentNetworkPolicy(t *testing.T) {
	policyOf := func(entrypoint *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint, spec addonv1alpha1.AddOnDeploymentConfigSpec) *networkingv1.NetworkPolicy {
		_, objects, err := render(t, "cluster1", configuration(entrypoint), &spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
				return policy
			}
		}
		return nil
	}
	on := []addonv1alpha1.CustomizedVariable{{Name: "networkPolicy", Value: "true"}}
	if policyOf(hostname("h"), addonv1alpha1.AddOnDeploymentConfigSpec{}) != nil {
		t.Error("there is one although nobody asked")
	}
	policy := policyOf(hostname("192.0.2.1"), addonv1alpha1.AddOnDeploymentConfigSpec{CustomizedVariables: on, ProxyConfig: addonv1alpha1.ProxyConfig{HTTPSProxy: "http://proxy.example.com:3128"}})
	if policy == nil {
		t.Fatal("there is none")
	}
	if len(policy.Spec.Ingress) != 0 || !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
		t.Errorf("somebody may dial the agent: %+v", policy.Spec)
	}
	hub, proxy := false, false
	for _, rule := range policy.Spec.Egress {
		if len(rule.To) == 0 && len(rule.Ports) == 0 {
			t.Errorf("the agent may dial everything: %+v", rule)
		}
		for _, port := range rule.Ports {
			hub = hub || port.Port.IntVal == 8091 && len(rule.To) == 1 && rule.To[0].IPBlock.CIDR == "192.0.2.1/32"
			proxy = proxy || port.Port.IntVal == 3128
		}
	}
	if !hub || !proxy {
		t.Errorf("the agent cannot dial the hub (%v) or its HTTP proxy (%v): %+v", hub, proxy, policy.Spec.Egress)
	}
}
