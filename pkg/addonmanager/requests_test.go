package addonmanager

import (
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonfake "open-cluster-management.io/api/client/addon/clientset/versioned/fake"
	clusterfake "open-cluster-management.io/api/client/cluster/clientset/versioned/fake"
	workfake "open-cluster-management.io/api/client/work/clientset/versioned/fake"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// approving is an agent whose certificates are approved.
type approving struct{}

func (approving) Manifests(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	return nil, nil
}

func (approving) GetAgentAddonOptions() agent.AgentAddonOptions {
	return agent.AgentAddonOptions{AddonName: identity.AddonName, Registration: &agent.RegistrationOption{
		CSRConfigurations: agent.KubeClientSignerConfigurations(identity.AddonName, identity.AddonName),
		CSRApproveCheck: func(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, *certificatesv1.CertificateSigningRequest) bool {
			return true
		},
	}}
}

// TestApprovalIsTriedAgain has a hub that fails when a request for a certificate is approved the
// first time.
func TestApprovalIsTriedAgain(t *testing.T) {
	const cluster = "cluster1"
	kube := kubefake.NewClientset(&certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "addon-request", Labels: map[string]string{addonv1alpha1.AddonLabelKey: identity.AddonName, clusterv1.ClusterNameLabelKey: cluster}},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName},
	})
	failed := false
	kube.PrependReactor("update", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failed {
			return false, nil, nil
		}
		failed = true
		return true, nil, errors.New("the hub fails")
	})
	startFramework(t, hubClients{
		kube: kube, dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), works: workfake.NewSimpleClientset(),
		clusters: clusterfake.NewSimpleClientset(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}),
		addons: addonfake.NewSimpleClientset(
			&addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: identity.AddonName}},
			&addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName}}),
	}, approving{})
	wait.Poll{Every: 10 * time.Millisecond, For: time.Minute}.Success(t, "the approval", func() error {
		request, err := kube.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "addon-request", metav1.GetOptions{})
		if err == nil && len(request.Status.Conditions) == 0 {
			err = errors.New("the request is not approved")
		}
		return err
	})
}
