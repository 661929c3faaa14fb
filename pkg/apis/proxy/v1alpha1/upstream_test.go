package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// TestNamesOfUpstream uses every name that programs written for OCM's
// cluster-proxy use of this package, as they do.
func TestNamesOfUpstream(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{proxyv1alpha1.AddToScheme, proxyv1alpha1.SchemeBuilder.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if !scheme.IsVersionRegistered(proxyv1alpha1.SchemeGroupVersion) || proxyv1alpha1.SchemeGroupVersion != proxyv1alpha1.GroupVersion {
		t.Errorf("group and version %v are not registered", proxyv1alpha1.SchemeGroupVersion)
	}
	want := schema.GroupResource{Group: "proxy.open-cluster-management.io", Resource: "managedproxyconfigurations"}
	if diff := cmp.Diff(want, proxyv1alpha1.Resource("managedproxyconfigurations")); diff != "" {
		t.Errorf("Resource (-want +got):\n%s", diff)
	}
	signer := proxyv1alpha1.AuthenticationSignerType("SelfSigned")
	configuration := proxyv1alpha1.ManagedProxyConfiguration{
		Spec: proxyv1alpha1.ManagedProxyConfigurationSpec{
			Authentication: proxyv1alpha1.ManagedProxyConfigurationAuthentication{
				Signer: proxyv1alpha1.ManagedProxyConfigurationCertificateSigner{Type: signer, SelfSigned: &proxyv1alpha1.AuthenticationSelfSigned{AdditionalSANs: []string{"a"}}},
				Dump: proxyv1alpha1.ManagedProxyConfigurationCertificateDump{Secrets: proxyv1alpha1.CertificateSigningSecrets{
					SigningProxyServerSecretName: "a", SigningProxyClientSecretName: "b", SigningAgentServerSecretName: "c"}},
			},
			ProxyServer: proxyv1alpha1.ManagedProxyConfigurationProxyServer{Image: "a", Replicas: 1, InClusterServiceName: "b", Namespace: "c", AdditionalArgs: []string{"d"},
				NodePlacement: proxyv1alpha1.NodePlacement{NodeSelector: map[string]string{}},
				Entrypoint: &proxyv1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: proxyv1alpha1.EntryPointTypePortForward, Port: 8091,
					LoadBalancerService: &proxyv1alpha1.EntryPointLoadBalancerService{Name: "a", Annotations: []proxyv1alpha1.AnnotationVar{{Key: "a", Value: "b"}}},
					Hostname:            &proxyv1alpha1.EntryPointHostname{Value: "a"}}},
			ProxyAgent: proxyv1alpha1.ManagedProxyConfigurationProxyAgent{Image: "a", Replicas: 1, AdditionalArgs: []string{"a"}, AdditionalServiceProxyArgs: []string{"b"},
				ImagePullSecrets: []string{"c"}, AdditionalServiceCAConfigMap: "d"},
			Deploy: &proxyv1alpha1.ManagedProxyConfigurationDeploy{Ports: proxyv1alpha1.ManagedProxyConfigurationDeployPorts{
				ProxyServer: 1, AgentServer: 2, HealthServer: 3, AdminServer: 4}},
			UserServer: &proxyv1alpha1.ManagedProxyConfigurationUserServer{AdditionalSANs: []string{"a"}},
		},
		Status: proxyv1alpha1.ManagedProxyConfigurationStatus{LastObservedGeneration: 1},
	}
	list := proxyv1alpha1.ManagedProxyConfigurationList{Items: []proxyv1alpha1.ManagedProxyConfiguration{configuration}}
	if diff := cmp.Diff(&list, list.DeepCopy()); diff != "" {
		t.Errorf("a copy differs (-want +got):\n%s", diff)
	}
	for got, want := range map[any]string{
		proxyv1alpha1.SelfSigned: "SelfSigned", proxyv1alpha1.EntryPointTypeHostname: "Hostname", proxyv1alpha1.EntryPointTypeLoadBalancerService: "LoadBalancerService",
		proxyv1alpha1.ConditionTypeProxyServerDeployed: "ProxyServerDeployed", proxyv1alpha1.ConditionTypeProxyServerSecretSigned: "ProxyServerSecretSigned",
		proxyv1alpha1.ConditionTypeAgentServerSecretSigned: "AgentServerSecretSigned", proxyv1alpha1.ConditionTypeProxyClientSecretSigned: "ProxyClientSecretSigned",
		proxyv1alpha1.ConditionTypeUserServerSecretSigned: "UserServerSecretSigned",
	} {
		switch value := got.(type) {
		case proxyv1alpha1.AuthenticationSignerType:
			got = string(value)
		case proxyv1alpha1.EntryPointType:
			got = string(value)
		}
		if got != want {
			t.Errorf("a constant is %v, want %q", got, want)
		}
	}
}
