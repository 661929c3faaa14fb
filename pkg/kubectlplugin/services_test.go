package kubectlplugin

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

const exposedList = `
- {namespace: web, service: everywhere, port: 80, protocol: http}
- {namespace: web, service: of-one, clusters: [c1], clusterSets: [dev], forwardAuthorization: true}
- {namespace: web, service: of-set, port: 5432, protocol: tcp, clusterSets: [prod]}
- {namespace: web, service: other, clusters: [c2], protocol: https, anonymous: true}
`

// listHub is a hub with a list in a namespace and a ConfigMap of names of its own. The
// answer to the ConfigMap is an error if code is not 200.
func listHub(t *testing.T, list string, code int) (kubeconfig string) {
	t.Helper()
	return clitest.FakeHubWith(t, func(serve func(string, int, any)) {
		configuration := v1alpha1.ManagedProxyConfiguration{}
		configuration.Spec.ProxyServer.Namespace = "addon"
		serve(cli.ConfigurationsPath, 200, v1alpha1.ManagedProxyConfigurationList{Items: []v1alpha1.ManagedProxyConfiguration{configuration}})
		manager := appsv1.Deployment{}
		manager.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"addon-manager", listFlag + "the-list"}}}
		serve("/apis/apps/v1/namespaces/addon/deployments/cluster-proxy-addon-manager", 200, manager)
		var answer any = corev1.ConfigMap{Data: map[string]string{"services": list}}
		if code != 200 {
			reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound}[code]
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "not for ann"}
		}
		serve("/api/v1/namespaces/addon/configmaps/the-list", code, answer)
		serve("/apis/cluster.open-cluster-management.io/v1/managedclusters/c1", 200, metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedCluster"}, ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{clusterv1beta2.ClusterSetLabel: "prod"}}})
	})
}

func TestServices(t *testing.T) {
	const of = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/"
	for name, test := range map[string]struct {
		list   string
		code   int
		args   []string
		out    []string // lines, with single spaces, in which HUB is the hub's URL
		not    string
		errOut string
		err    string
	}{
		"all": {list: exposedList, out: []string{
			"NAMESPACE SERVICE PORT PROTOCOL CLUSTERS TERMS REACHED BY",
			"web everywhere 80 http all <none> HUB" + of + "CLUSTER/proxy/api/v1/namespaces/web/services/http:everywhere:80/proxy-service/",
			"web of-one any any c1,set dev own login HUB" + of + "CLUSTER/proxy/api/v1/namespaces/web/services/https:of-one:PORT/proxy-service/",
			"web of-set 5432 tcp set prod <none> CONNECT of-set.web.svc.CLUSTER:5432",
			"web other any https c2 anonymous HUB" + of + "CLUSTER/proxy/api/v1/namespaces/web/services/https:other:PORT/proxy-service/"},
			errOut: "token of the hub"},
		"of a cluster": {list: exposedList, args: []string{"c1"}, not: "other", out: []string{
			"web everywhere 80 http c1 <none> HUB" + of + "c1/proxy/api/v1/namespaces/web/services/http:everywhere:80/proxy-service/",
			"web of-set 5432 tcp c1 <none> CONNECT of-set.web.svc.c1:5432"}},
		"of one whose set is not known": {list: exposedList, args: []string{"c2"}, not: "of-set", errOut: "left out, because the set of c2 is not known"},
		"of an unknown cluster":         {list: exposedList, args: []string{"c3"}, err: `no cluster "c3" that you may reach`},
		"none":                          {errOut: "No Service of any cluster is exposed"},
		"no list":                       {code: 404, errOut: "No Service of any cluster is exposed"},
		"may not":                       {code: 403, err: "ask an administrator of the hub to run: kubectl create role -n addon see-exposed-services"},
		"a wrong entry": {list: exposedList + "\n- {namspace: web}", out: []string{
			"web of-set 5432 tcp set prod <none> CONNECT of-set.web.svc.CLUSTER:5432"}, errOut: "entry 5 is left out"},
		"a mistake": {list: "- {namspace: web", err: `ConfigMap "the-list" in namespace "addon" has a mistake`},
	} {
		t.Run(name, func(t *testing.T) {
			if test.code == 0 {
				test.code = 200
			}
			kubeconfig := listHub(t, test.list, test.code)
			out, errOut, err := run(t, kubeconfig, append([]string{"services"}, test.args...)...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			clitest.WantLines(t, strings.ReplaceAll(out, clitest.HubOf(t, kubeconfig), "HUB"), test.out)
			if test.not != "" && strings.Contains(out, test.not) {
				t.Errorf("it shows %q:\n%s", test.not, out)
			}
			if !strings.Contains(errOut, test.errOut) {
				t.Errorf("standard error is %q, want %q in it", errOut, test.errOut)
			}
		})
	}
}

func TestServicesAsJSON(t *testing.T) {
	out, _, err := run(t, listHub(t, exposedList, 200), "services", "c1", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Kind  string
		Items []exposed
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.Kind != "ExposedServiceList" {
		t.Fatalf("a %q, %v", list.Kind, err)
	}
	got := list.Items
	if len(got) != 3 || !strings.HasSuffix(got[0].URL, "/services/http:everywhere:80/proxy-service/") || got[1].Service != "of-one" || got[1].Connect != "of-one.web.svc.c1:PORT" || got[2].URL != "" {
		t.Errorf("got %+v, want the three Services of c1", got)
	}
}
