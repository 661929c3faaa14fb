//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package addonmanager

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestWhatIsRenderedAgain counts the clusters of 500 that an event renders again.
func TestWhatIsRenderedAgain(t *testing.T) {
	const fleet = 500
	scheme := runtime.NewScheme()
	if err := addonv1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for i := range fleet {
		for _, name := range []string{identity.AddonName, "another"} {
			builder.WithObjects(&addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("cluster", i), Name: name}})
		}
	}
	reader := builder.Build()

	secret := func(name, ca, annotation string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": annotation}},
			Data: map[string][]byte{"ca.crt": []byte(ca), "next-ca.crt": []byte(annotation)}}
	}
	configuration := func(generation int64, status string) *v1alpha1.ManagedProxyConfiguration {
		return &v1alpha1.ManagedProxyConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Generation: generation},
			Status:     v1alpha1.ManagedProxyConfigurationStatus{Conditions: []metav1.Condition{{Type: "Deployed", Message: status}}},
		}
	}
	service := func(kind corev1.ServiceType, ip, label string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": label}}, Spec: corev1.ServiceSpec{Type: kind},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: ip}}}}}
	}
	list := func(name, data, label string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": label}}, Data: map[string]string{"k": data}}
	}
	for _, tc := range []struct {
		name        string
		before, now client.Object
		want        int
	}{
		{"a configuration's status", configuration(1, "1 of 2"), configuration(1, "2 of 2"), 0},
		{"a configuration's spec", configuration(1, ""), configuration(2, ""), fleet},
		{"the hub CA's bundle", secret(certificates.HubBundleSecret, "a", ""), secret(certificates.HubBundleSecret, "a b", ""), fleet},
		{"the agent CA", secret(certificates.AgentSignerSecret, "a", ""), secret(certificates.AgentSignerSecret, "b", ""), fleet},
		{"the next agent CA, which does not sign", secret(certificates.AgentSignerSecret, "a", ""), secret(certificates.AgentSignerSecret, "a", "b"), 0},
		{"another Secret", secret("another", "a", ""), secret("another", "b", ""), 0},
		{"a load balancer's address", service(corev1.ServiceTypeLoadBalancer, "192.0.2.1", ""), service(corev1.ServiceTypeLoadBalancer, "192.0.2.2", ""), fleet},
		{"a load balancer's label", service(corev1.ServiceTypeLoadBalancer, "192.0.2.1", "a"), service(corev1.ServiceTypeLoadBalancer, "192.0.2.1", "b"), 0},
		{"a Service that becomes a load balancer", service(corev1.ServiceTypeClusterIP, "", ""), service(corev1.ServiceTypeLoadBalancer, "", ""), fleet},
		{"another Service", service(corev1.ServiceTypeClusterIP, "", "a"), service(corev1.ServiceTypeClusterIP, "", "b"), 0},
		{"the list of Services", list("exposed", "a", ""), list("exposed", "b", ""), fleet},
		{"a label of that list", list("exposed", "a", "a"), list("exposed", "a", "b"), 0},
		{"another ConfigMap", list("another", "a", ""), list("another", "b", ""), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := 0
			for _, s := range sources("exposed") {
				if fmt.Sprintf("%T", s.kind) != fmt.Sprintf("%T", tc.now) {
					continue
				}
				if s.changes().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.now}) {
					got += len(everyCluster(reader)(t.Context(), tc.now))
				}
			}
			if got != tc.want {
				t.Errorf("%d clusters are rendered again, want %d", got, tc.want)
			}
		})
	}
}

func TestAStartRendersOnce(t *testing.T) {
	for _, s := range sources("exposed") {
		if s.changes().Create(event.CreateEvent{Object: s.kind, IsInInitialList: true}) {
			t.Errorf("a %T that was there renders every cluster again", s.kind)
		}
	}
	if configuration := (&v1alpha1.ManagedProxyConfiguration{}); !sources("exposed")[0].changes().Create(event.CreateEvent{Object: configuration}) {
		t.Error("a new configuration renders nothing")
	}
}

func TestSlimKeepsWhatIsRead(t *testing.T) {
	now := metav1.Now()
	available := metav1.Condition{Type: "Available", Status: metav1.ConditionFalse}
	for name, test := range map[string]struct{ object, want client.Object }{
		"addon": {
			object: &addonv1alpha1.ManagedClusterAddOn{
				ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", DeletionTimestamp: &now, Annotations: map[string]string{"long": "text"}},
				Spec:       addonv1alpha1.ManagedClusterAddOnSpec{InstallNamespace: "x"},
				Status: addonv1alpha1.ManagedClusterAddOnStatus{Namespace: "x", KubeClientDriver: "token",
					Conditions: []metav1.Condition{{Type: "Other"}, available}},
			},
			want: &addonv1alpha1.ManagedClusterAddOn{
				ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", DeletionTimestamp: &now},
				Status:     addonv1alpha1.ManagedClusterAddOnStatus{Namespace: "x", KubeClientDriver: "token", Conditions: []metav1.Condition{available}},
			},
		},
		"cluster": {
			object: &clusterv1.ManagedCluster{
				ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: &now, Labels: map[string]string{"region": "eu"}, Annotations: map[string]string{"long": "text"}},
				Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60},
				Status:     clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{available}},
			},
			want: &clusterv1.ManagedCluster{
				ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: &now, Labels: map[string]string{"region": "eu"}},
				Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := slim(test.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(test.want), got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}
