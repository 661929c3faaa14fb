package clusterprofile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	hub = "hub"
	ca  = "the hub CA's bundle"
)

func profile(labels map[string]string) *v1alpha1.ClusterProfile {
	return &v1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "profile-of-c1", Labels: labels}}
}

func ocmLabels() map[string]string {
	return map[string]string{v1alpha1.LabelClusterManagerKey: Provider, clusterv1.ClusterNameLabelKey: "c1"}
}

func addon() *addonv1alpha1.ManagedClusterAddOn {
	return &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: identity.AddonName}}
}

func secrets(providedCA string) []client.Object {
	serving := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hub, Name: certificates.UserServingSecret}}
	if providedCA == "" {
		serving.OwnerReferences = []metav1.OwnerReference{{Kind: "ManagedProxyConfiguration", Name: "cluster-proxy"}}
	} else {
		serving.Data = map[string][]byte{"ca.crt": []byte(providedCA)}
	}
	return []client.Object{serving, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: hub, Name: certificates.HubBundleSecret},
		Data:       map[string][]byte{"ca.crt": []byte(ca)},
	}}
}

// reconcileProfile runs r once against the objects, twice if again changes them
// in between, and gives the providers of the profile. The fake client does not
// know which lists of the kind are maps; that the providers of others stay is
// shown on a real API server, in test/e2e.
func reconcileProfile(t *testing.T, r Reconciler, objects []client.Object, again func(client.Client)) ([]v1alpha1.AccessProvider, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, addonv1alpha1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ClusterProfile{}).WithReturnManagedFields().WithObjects(objects...).Build()
	r.Profiles, r.Namespace = r.Client, hub
	key := client.ObjectKey{Namespace: "fleet", Name: "profile-of-c1"}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err == nil && again != nil {
		again(r.Client)
		_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	}
	var got v1alpha1.ClusterProfile
	if err := r.Client.Get(t.Context(), key, &got); err != nil {
		t.Fatal(err)
	}
	return got.Status.AccessProviders, err
}

func ours(server, ca string) v1alpha1.AccessProvider {
	return v1alpha1.AccessProvider{Name: Provider, Cluster: clientcmdv1.Cluster{
		Server: server, CertificateAuthorityData: []byte(ca),
		Extensions: []clientcmdv1.NamedExtension{{Name: "client.authentication.k8s.io/exec", Extension: runtime.RawExtension{Raw: []byte(`{"clusterName":"c1"}`)}}},
	}}
}

func TestReconcile(t *testing.T) {
	foreign := ocmLabels()
	foreign[v1alpha1.LabelClusterManagerKey] = "somebody-else"
	hostile := ocmLabels()
	hostile[clusterv1.ClusterNameLabelKey] = "c1/../c2"
	for name, test := range map[string]struct {
		reconciler Reconciler
		labels     map[string]string
		objects    []client.Object
		again      func(client.Client)
		want       []v1alpha1.AccessProvider
	}{
		"in-cluster address": {
			labels: ocmLabels(), objects: append(secrets(""), addon()),
			want: []v1alpha1.AccessProvider{ours("https://cluster-proxy-addon-user.hub:9092/c1", ca)},
		},
		"address outside the hub": {
			reconciler: Reconciler{Server: "https://proxy.example.com/"},
			labels:     ocmLabels(), objects: append(secrets(""), addon()),
			want: []v1alpha1.AccessProvider{ours("https://proxy.example.com/c1", ca)},
		},
		"certificate of the user's own": {
			labels: ocmLabels(), objects: append(secrets("the user's CA"), addon()),
			want: []v1alpha1.AccessProvider{ours("https://cluster-proxy-addon-user.hub:9092/c1", "the user's CA")},
		},
		"no addon": {labels: ocmLabels(), objects: secrets("")},
		"addon removed": {
			labels: ocmLabels(), objects: append(secrets(""), addon()),
			again: func(c client.Client) {
				if err := c.Delete(t.Context(), addon()); err != nil {
					t.Fatal(err)
				}
			},
		},
		"another manager's profile": {labels: foreign, objects: append(secrets(""), addon())},
		"no cluster's name":         {labels: hostile, objects: append(secrets(""), addon())},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reconcileProfile(t, test.reconciler, append(test.objects, profile(test.labels)), test.again)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("access providers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoBundleYet(t *testing.T) {
	got, err := reconcileProfile(t, Reconciler{}, []client.Object{addon(), profile(ocmLabels())}, nil)
	if err == nil || !strings.Contains(err.Error(), "serving certificate") {
		t.Errorf("error %v, want one about the serving certificate", err)
	}
	if len(got) != 0 {
		t.Errorf("access providers are %v, want none of ours before clients can verify it", got)
	}
}
