package diagnose

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// upstreamsHub answers as a hub with OCM's own cluster-proxy does: cluster good has
// variables that go on, bad one that does not, and many requests for certificates.
func upstreamsHub(t *testing.T) kubernetes.Interface {
	t.Helper()
	answers := map[string]any{}
	configuration := v1alpha1.ManagedProxyConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy"}}
	configuration.Spec.ProxyServer.Image, configuration.Spec.ProxyAgent.Image = "i", "i"
	configuration.Spec.ProxyAgent.AdditionalServiceProxyArgs = []string{"--kube-api-qps=100"}
	helms := metav1.ObjectMeta{Name: "cluster-proxy", Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}, Annotations: map[string]string{
		"meta.helm.sh/release-name": "cluster-proxy", "meta.helm.sh/release-namespace": "open-cluster-management-addon"}}
	answers[managementAddonPath] = metav1.PartialObjectMetadata{ObjectMeta: helms}
	answers[cli.ConfigurationsPath+"/cluster-proxy"] = metav1.PartialObjectMetadata{ObjectMeta: helms}
	answers["/apis/proxy.open-cluster-management.io/v1alpha1/managedproxyconfigurations"] = v1alpha1.ManagedProxyConfigurationList{Items: []v1alpha1.ManagedProxyConfiguration{configuration}}
	answers["/apis/proxy.open-cluster-management.io/v1alpha1/managedproxyserviceresolvers"] = metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, 1)}
	var addons addonv1alpha1.ManagedClusterAddOnList
	for cluster, variable := range map[string]string{"good": "serviceDomain", "bad": "agentIdentifiers"} {
		addon := addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy", Namespace: cluster}}
		addon.Status.ConfigReferences = []addonv1alpha1.ConfigReference{{
			ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"},
			DesiredConfig:       &addonv1alpha1.ConfigSpecHash{ConfigReferent: addonv1alpha1.ConfigReferent{Namespace: cluster, Name: "adc"}},
		}}
		addons.Items = append(addons.Items, addon, addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: cluster}})
		answers[cli.AddonAPI+"/namespaces/"+cluster+"/addondeploymentconfigs/adc"] = addonv1alpha1.AddOnDeploymentConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "adc"},
			Spec:       addonv1alpha1.AddOnDeploymentConfigSpec{CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: variable, Value: "x"}}},
		}
	}
	answers[cli.AddonAPI+"/managedclusteraddons"] = addons
	var requests certificatesv1.CertificateSigningRequestList
	for range requestLimit {
		requests.Items = append(requests.Items, certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"open-cluster-management.io/cluster-name": "bad"}}})
	}
	answers["/apis/certificates.k8s.io/v1/certificatesigningrequests"] = requests
	answers["/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"] = rbacv1.ClusterRoleBindingList{}
	answers["/api/v1/services"] = corev1.ServiceList{Items: []corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy-agent-entrypoint"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"proxy.open-cluster-management.io/component-name": "proxy-server"},
			Ports: []corev1.ServicePort{{Port: 8090}, {Port: 8091}}},
	}}}
	return hubWith(t, answers, func(path string) { t.Errorf("asked for %s", path) })
}

const managementAddonPath = cli.AddonAPI + "/clustermanagementaddons/cluster-proxy"

// hubWith answers with objects by their paths, and 404 to others.
func hubWith(t *testing.T, answers map[string]any, missing func(path string)) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			missing(r.URL.Path)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	hub, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// TestCheckBeforeAMove says what of an installation of OCM's own cluster-proxy goes
// on, and what does not.
func TestCheckBeforeAMove(t *testing.T) {
	got := map[string]bool{}
	for _, f := range precheck(context.Background(), upstreamsHub(t)) {
		got[f.ID+" "+f.Cluster] = f.OK
		if !f.OK && f.Remedy == "" || f.Text == "" {
			t.Errorf("%s says %q and nothing about what to do", f.ID, f.Text)
		}
	}
	want := map[string]bool{
		"pre-owner ": true, "pre-configuration ": true, "pre-variables good": true, "pre-variables bad": false, "pre-requests bad": false,
		"pre-users ": false, "pre-resolvers ": false, "pre-client-port ": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings that are good (-want +got):\n%s", diff)
	}
}

// TestCheckOwners finds out whose the addon's objects are. MultiClusterEngine's are
// labelled and owned as its operator makes them.
func TestCheckOwners(t *testing.T) {
	controls := true
	ownedBy := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "multicluster.openshift.io/v1", Kind: kind, Name: name, Controller: &controls}}
	}
	for _, tc := range []struct {
		name     string
		object   *metav1.ObjectMeta
		wantOK   bool
		wantText string
	}{
		{"nobody's", nil, true, "no installation has the addon's objects"},
		{"MultiClusterEngine's", &metav1.ObjectMeta{Labels: map[string]string{"backplaneconfig.name": "engine"}, OwnerReferences: ownedBy("MultiClusterEngine", "engine")},
			false, `ClusterManagementAddOn "cluster-proxy" belongs to MultiClusterEngine "engine"`},
		{"MultiClusterEngine's by label alone, and Helm's", &metav1.ObjectMeta{Labels: map[string]string{"backplaneconfig.name": "engine", "app.kubernetes.io/managed-by": "Helm"},
			Annotations: map[string]string{"meta.helm.sh/release-name": "mine"}}, false, `belongs to MultiClusterEngine "engine"`},
		{"MultiClusterEngine's by owner alone", &metav1.ObjectMeta{OwnerReferences: ownedBy("MultiClusterEngine", "engine")}, false, `belongs to MultiClusterEngine "engine"`},
		{"another operator's", &metav1.ObjectMeta{OwnerReferences: ownedBy("Stack", "ours")}, false, `belongs to Stack "ours"`},
		{"another release's", &metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
			Annotations: map[string]string{"meta.helm.sh/release-name": "old", "meta.helm.sh/release-namespace": "ns"}}, true, `Helm's release "old" in namespace "ns"`},
		{"Argo CD's", &metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}}, true, "rendered from a chart by another tool"},
		{"applied by hand", &metav1.ObjectMeta{}, false, "belongs to no release of Helm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answers := map[string]any{}
			if tc.object != nil {
				answers[managementAddonPath] = metav1.PartialObjectMetadata{ObjectMeta: *tc.object}
			}
			findings := checkOwners(context.Background(), hubWith(t, answers, func(string) {}))
			if len(findings) != 1 {
				t.Fatalf("%d findings, want 1: %+v", len(findings), findings)
			}
			f := findings[0]
			if f.ID != "pre-owner" || f.OK != tc.wantOK || !strings.Contains(f.Text, tc.wantText) || f.OK != (f.Remedy == "") {
				t.Errorf("got %+v, want OK %v, a text with %q, and a remedy unless OK", f, tc.wantOK, tc.wantText)
			}
		})
	}
}
