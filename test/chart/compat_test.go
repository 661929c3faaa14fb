package chart

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Upstream's values have ports as numbers, and its addon manager reads text only.
func TestExposedServicesWithNumbers(t *testing.T) {
	configMap := as[corev1.ConfigMap](t, mustRender(t, "exposedServices: [{namespace: a, service: b, port: 8000}, {namespace: a, service: c, port: web, protocol: http}, {namespace: a, service: d, clusters: [c1], clusterSets: [prod], forwardAuthorization: true, anonymous: true}]").byName["ConfigMap/cluster-proxy-exposed-services"])
	if !strings.Contains(configMap.Data["services"], `port: "8000"`) {
		t.Errorf("the ConfigMap has a number:\n%s; want port: \"8000\"", configMap.Data["services"])
	}
	got, leftOut, err := agentapi.ParseExposedServices(configMap.Data)
	want := agentapi.ExposedServices{{Namespace: "a", Service: "b", Port: "8000"}, {Namespace: "a", Service: "c", Port: "web", Protocol: "http"},
		{Namespace: "a", Service: "d", Clusters: []string{"c1"}, ClusterSets: []string{"prod"}, ForwardAuthorization: true, Anonymous: true}}
	if diff := cmp.Diff(want, got); err != nil || leftOut != nil || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", err, leftOut, diff)
	}
}

// Added arguments come after those of the chart, and reach every process.
func TestMoreArguments(t *testing.T) {
	rendered := mustRender(t, everything)
	for _, deployment := range rendered.deployments(t) {
		more := map[string]string{"cluster-proxy-addon-manager": "--leader-elect=false", "cluster-proxy-addon-user": "--max-requests-per-user=1", "cluster-proxy-fleet-index": "--max-rows-per-cluster=1"}[deployment.Name]
		args := deployment.Spec.Template.Spec.Containers[0].Args
		if diff := cmp.Diff([]string{"--v=4", "--logging-format=json", more}, args[len(args)-3:]); diff != "" {
			t.Errorf("last arguments of %s (-want +got):\n%s", deployment.Name, diff)
		}
	}
	spec := as[v1alpha1.ManagedProxyConfiguration](t, rendered.byName["ManagedProxyConfiguration/cluster-proxy"]).Spec
	if diff := cmp.Diff([]string{"--v=4", "--logging-format=json", "--keepalive-time=20s"}, spec.ProxyServer.AdditionalArgs); diff != "" {
		t.Errorf("arguments of proxy servers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"--v=4", "--logging-format=json", "--sync-interval=2s"}, spec.ProxyAgent.AdditionalArgs); diff != "" {
		t.Errorf("arguments of agents (-want +got):\n%s", diff)
	}
	// Arguments that users set in the object itself stay.
	spec = as[v1alpha1.ManagedProxyConfiguration](t, mustRender(t, "").byName["ManagedProxyConfiguration/cluster-proxy"]).Spec
	if spec.ProxyServer.AdditionalArgs != nil || spec.ProxyAgent.AdditionalArgs != nil {
		t.Errorf("the chart sets arguments without being asked: %v, %v", spec.ProxyServer.AdditionalArgs, spec.ProxyAgent.AdditionalArgs)
	}
}

// In a chart that depends on this one, Helm hands down global values, and all
// templates share one list of names, of which the last one read counts.
func TestUmbrella(t *testing.T) {
	parent := &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "platform", Version: "1.0.0",
			Dependencies: []*chart.Dependency{{Name: "cluster-proxy", Version: "*", Condition: "cluster-proxy.enabled"}}},
		Templates: []*chart.File{{Name: "templates/_helpers.tpl", Data: []byte(`{{ define "labels" }}theirs{{ end }}{{ define "image" }}theirs{{ end }}`)}},
		Values:    map[string]any{"global": map[string]any{"registry": "example.com", "pullSecrets": []any{"a"}}},
	}
	parent.AddDependency(load(t))
	got, err := render(t, parent, "cluster-proxy: {enabled: true, replicas: 2}")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mustRender(t, "replicas: 2").byName, got.byName); diff != "" {
		t.Errorf("what is rendered differs (-alone +in another chart):\n%s", diff)
	}
	for _, file := range load(t).Templates {
		for _, match := range regexp.MustCompile(`define "([^"]*)"`).FindAllStringSubmatch(string(file.Data), -1) {
			if !strings.HasPrefix(match[1], "cluster-proxy.") {
				t.Errorf("%s: template %q may be another chart's too; begin its name with cluster-proxy.", file.Name, match[1])
			}
		}
	}
}

// TestPortOfTheProxyAPI has the pods listen where the control planes of clouds reach them; clients
// of the Service see nothing of it.
func TestPortOfTheProxyAPI(t *testing.T) {
	for values, want := range map[string]struct {
		port   int32
		target string
	}{"": {9092, "9092"}, "proxyAPI: {port: 10250}": {10250, "https"}} {
		o := mustRender(t, values).byName
		container := as[appsv1.Deployment](t, o["Deployment/cluster-proxy-addon-user"]).Spec.Template.Spec.Containers[0]
		if flag := fmt.Sprintf("--server-port=%d", want.port); !slices.Contains(container.Args, flag) || container.Ports[0].ContainerPort != want.port || container.Ports[0].Name != "https" {
			t.Errorf("%q: arguments %q, ports %v; want port %d", values, container.Args, container.Ports, want.port)
		}
		ports := as[corev1.Service](t, o["Service/cluster-proxy-addon-user"]).Spec.Ports
		if ports[0].Port != 9092 || ports[0].TargetPort.String() != want.target {
			t.Errorf("%q: the Service has %v, want 9092 to %s", values, ports, want.target)
		}
	}
	for _, port := range []int{443, 8000, 9093, 70000} {
		if _, err := render(t, load(t), fmt.Sprintf("proxyAPI: {port: %d}", port)); err == nil {
			t.Errorf("port %d is accepted", port)
		}
	}
}

// TestLinuxNodesOnly has a hub with Windows nodes: there is an image for Linux only.
func TestLinuxNodesOnly(t *testing.T) {
	for values, want := range map[string]map[string]string{"": {"kubernetes.io/os": "linux"}, "nodeSelector: {a: b}": {"a": "b", "kubernetes.io/os": "linux"}, "nodeSelector: {kubernetes.io/os: plan9}": {"kubernetes.io/os": "plan9"}} {
		o := mustRender(t, values)
		for _, deployment := range o.deployments(t) {
			if diff := cmp.Diff(want, deployment.Spec.Template.Spec.NodeSelector); diff != "" {
				t.Errorf("%q: %s (-want +got):\n%s", values, deployment.Name, diff)
			}
		}
		if diff := cmp.Diff(want, as[v1alpha1.ManagedProxyConfiguration](t, o.byName["ManagedProxyConfiguration/cluster-proxy"]).Spec.ProxyServer.NodePlacement.NodeSelector); diff != "" {
			t.Errorf("%q: proxy servers (-want +got):\n%s", values, diff)
		}
	}
}
