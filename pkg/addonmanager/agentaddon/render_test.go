package agentaddon

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// TestManifestsOfManyClustersAtOnce asks as the controllers of addon-framework do, which look at
// several clusters at a time.
func TestManifestsOfManyClustersAtOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, addonv1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := pki.NewCA("hub", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	bundle := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificates.HubBundleSecret, Namespace: hubNamespace}, Data: map[string][]byte{"ca.crt": ca.CertPEM}}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(configuration(nil), bundle).Build()
	addon := &Addon{Hub: reader, Reader: reader, Certificates: certificates.Store{Client: reader, Namespace: hubNamespace, BundleNamespace: hubNamespace},
		DeploymentConfigs: oneConfig{}, InstallNamespace: identity.DefaultAgentNamespace, EnableKubeAPIProxy: true}
	built, err := addon.Build()
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for i := range 20 {
		asking.Go(func() {
			name := fmt.Sprint("cluster", i)
			objects, err := built.Manifests(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}},
				&addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: name}})
			if err != nil {
				t.Error(err)
				return
			}
			for _, object := range objects {
				if agent, ok := object.(*appsv1.Deployment); ok && !slices.Contains(agent.Spec.Template.Spec.Containers[0].Args, "--cluster-name="+name) {
					t.Errorf("the agent of %s has the arguments %q", name, agent.Spec.Template.Spec.Containers[0].Args)
				}
			}
		})
	}
	asking.Wait()
}
