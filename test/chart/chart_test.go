package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
)

// everything switches on all that is optional.
const everything = `
replicas: 2
networkPolicies: {enabled: true, clients: [{namespaceSelector: {matchLabels: {a: b}}}], monitoring: [{namespaceSelector: {matchLabels: {c: d}}}], recordings: []}
imagePullSecrets: [pull]
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]
priorityClassName: high
podLabels: {team: a}
podAnnotations: {note: b}
proxyConfig: {httpProxy: "http://p:1", httpsProxy: "http://p:2", noProxy: ".svc"}
userServer: {additionalSANs: [proxy.example.com]}
logging: {level: 4, format: json}
extraArgs: {addonManager: [--leader-elect=false], proxyAPI: [--max-requests-per-user=1], proxyServer: [--keepalive-time=20s], proxyAgent: [--sync-interval=2s]}
karmadaAPI: {enabled: true, controlPlaneCluster: local-cluster}
ui: {enabled: true}
monitoring: {podMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}, prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboards: {enabled: true, annotations: {folder: a}}}
proxyAPI: {allowAuthenticated: true, clusterDomain: c.example.com, audiences: [a, b], allowAnonymous: true, hubOutageGraceSeconds: 0, limits: {requestsPerUser: 0}, revalidateStreamsSeconds: 0, audit: {policyConfigMap: p, webhookSecret: w}, tracingConfigMap: t, recording: {enabled: true, existingClaim: r, fsGroup: 65532, clusters: [a], clusterSets: [b], failClosed: true, stdin: true}}
`

// TestHTTPProxyIsForAllPodsOnTheHub looks at the proxy servers too, which watch the hub's clusters
// and are made by the addon manager.
func TestHTTPProxyIsForAllPodsOnTheHub(t *testing.T) {
	want := map[string]string{"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:2", "NO_PROXY": ".svc"}
	check := func(of string, env []corev1.EnvVar) {
		t.Helper()
		got := map[string]string{}
		for _, variable := range env {
			if strings.HasSuffix(variable.Name, "_PROXY") {
				got[variable.Name] = variable.Value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of, diff)
		}
	}
	for _, d := range mustRender(t, "proxyConfig: {httpProxy: 'http://p:1', httpsProxy: 'http://p:2', noProxy: .svc}").deployments(t) {
		container := d.Spec.Template.Spec.Containers[0]
		check(d.Name, container.Env)
		for _, arg := range container.Args {
			if text, ok := strings.CutPrefix(arg, "--proxy-server-pods="); ok {
				pods, err := proxyconfig.ParsePods(text)
				if err != nil {
					t.Fatal(err)
				}
				check("proxy servers", pods.Env)
			}
		}
	}
}

// Upgrades from upstream's chart find the objects that are there by these names.
func TestNames(t *testing.T) {
	want := []string{
		"APIService/v1alpha1.clusterproxy.open-cluster-management.io",
		"ClusterManagementAddOn/cluster-proxy",
		"ClusterRole/cluster-proxy-metrics-reader",
		"ClusterRole/cluster-proxy-pass-issuer",
		"ClusterRole/cluster-proxy-session-manager",
		"ClusterRole/cluster-proxy-user",
		"ClusterRole/cluster-proxy-viewer",
		"ClusterRole/open-cluster-management:cluster-proxy:addon-manager",
		"ClusterRole/open-cluster-management:cluster-proxy:ca-bundle",
		"ClusterRole/open-cluster-management:cluster-proxy:proxy-api",
		"ClusterRole/open-cluster-management:cluster-proxy:proxy-server",
		"ClusterRoleBinding/open-cluster-management:cluster-proxy:addon-manager",
		"ClusterRoleBinding/open-cluster-management:cluster-proxy:ca-bundle",
		"ClusterRoleBinding/open-cluster-management:cluster-proxy:proxy-api",
		"ClusterRoleBinding/open-cluster-management:cluster-proxy:proxy-api:auth-delegator",
		"ClusterRoleBinding/open-cluster-management:cluster-proxy:proxy-server",
		"CustomResourceDefinition/fleetviews.proxy.open-cluster-management.io",
		"CustomResourceDefinition/karmadaresourceregistries.proxy.open-cluster-management.io",
		"CustomResourceDefinition/managedproxyconfigurations.proxy.open-cluster-management.io",
		"CustomResourceDefinition/passes.proxy.open-cluster-management.io",
		"Deployment/cluster-proxy-addon-manager",
		"Deployment/cluster-proxy-addon-user",
		"FleetView/all", "FlowSchema/cluster-proxy-reviews",
		"ManagedClusterSetBinding/global",
		"ManagedProxyConfiguration/cluster-proxy",
		"Namespace/cluster-proxy-passes",
		"Placement/cluster-proxy-placement", "Pod/cluster-proxy-test", "PriorityLevelConfiguration/cluster-proxy-reviews",
		"Role/cluster-proxy-pass-accounts",
		"Role/cluster-proxy-pass-issuer",
		"Role/open-cluster-management:cluster-proxy:addon-manager",
		"Role/open-cluster-management:cluster-proxy:proxy-api",
		"RoleBinding/cluster-proxy-pass-accounts",
		"RoleBinding/open-cluster-management:cluster-proxy:addon-manager",
		"RoleBinding/open-cluster-management:cluster-proxy:proxy-api",
		"RoleBinding/open-cluster-management:cluster-proxy:proxy-api:authentication-reader",
		"Service/cluster-proxy-addon-user",
		"Service/cluster-proxy-addon-user-peers",
		"ServiceAccount/cluster-proxy",
		"ServiceAccount/cluster-proxy-addon-manager",
		"ServiceAccount/cluster-proxy-addon-user",
		"ValidatingAdmissionPolicy/cluster-proxy-agents-port-forward",
		"ValidatingAdmissionPolicy/cluster-proxy-pass-accounts",
		"ValidatingAdmissionPolicy/cluster-proxy-pass-makers",
		"ValidatingAdmissionPolicy/cluster-proxy-passes",
		"ValidatingAdmissionPolicyBinding/cluster-proxy-agents-port-forward",
		"ValidatingAdmissionPolicyBinding/cluster-proxy-pass-accounts",
		"ValidatingAdmissionPolicyBinding/cluster-proxy-pass-makers",
		"ValidatingAdmissionPolicyBinding/cluster-proxy-passes",
	}
	got := slices.Sorted(maps.Keys(mustRender(t, "").byName))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	more := mustRender(t, everything).byName
	for _, name := range []string{
		"NetworkPolicy/cluster-proxy-addon-manager-network-policy",
		"NetworkPolicy/cluster-proxy-addon-user-network-policy",
		"NetworkPolicy/cluster-proxy-proxy-server-network-policy",
		"PodDisruptionBudget/cluster-proxy-addon-manager",
		"PodDisruptionBudget/cluster-proxy-addon-user",
	} {
		if more[name] == nil {
			t.Errorf("no %s with everything switched on", name)
		}
	}
}

// Upstream's chart of 0.11 with --reuse-values knows none of the values that
// are new here.
func TestUpgradeReusingUpstreamsValues(t *testing.T) {
	c := load(t)
	for _, added := range []string{"imagePullSecrets", "resources", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints",
		"priorityClassName", "podLabels", "podAnnotations", "podDisruptionBudget", "proxyAPI", "terminationGracePeriodSeconds", "proxyConfig", "signer", "secretPropagationSeconds", "logging", "extraArgs", "withoutLookup", "monitoring", "passes"} {
		if _, ok := c.Values[added]; !ok {
			t.Errorf("the test lists a value %q that the chart does not have", added)
		}
		delete(c.Values, added)
	}
	o, err := render(t, c, "networkPolicies: {clients: null}\nreplicas: 2")
	if err != nil {
		t.Fatal(err)
	}
	if len(o.deployments(t)) != 2 {
		t.Errorf("got %d Deployments, want 2", len(o.deployments(t)))
	}
}

func TestEntrypoint(t *testing.T) {
	for _, tc := range []struct {
		name, values string
		want         map[string]any
	}{
		{"port-forward", "", map[string]any{"type": "PortForward", "port": int64(8091)}},
		{"host name", "proxyServer: {entrypointAddress: hub.example.com, port: 443}",
			map[string]any{"type": "Hostname", "hostname": map[string]any{"value": "hub.example.com"}, "port": int64(443)}},
		{"load balancer", "proxyServer: {entrypointLoadBalancer: true}",
			map[string]any{"type": "LoadBalancerService", "loadBalancerService": map[string]any{}, "port": int64(8091)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			configuration := mustRender(t, tc.values).byName["ManagedProxyConfiguration/cluster-proxy"]
			got, _, err := unstructured.NestedMap(configuration.Object, "spec", "proxyServer", "entrypoint")
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range got {
				if number, ok := value.(float64); ok {
					got[key] = int64(number)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("entrypoint (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImages(t *testing.T) {
	for _, tc := range []struct{ name, values, want string }{
		{"default", "", "quay.io/open-cluster-management/cluster-proxy:v0.12.0"},
		{"tag", "tag: v1", "quay.io/open-cluster-management/cluster-proxy:v1"},
		{"own image", "{tag: v1, proxyServerImage: 'registry:5000/a/b'}", "registry:5000/a/b:v1"},
		{"own tag", "{tag: v1, proxyServerImage: 'registry:5000/a/b:c'}", "registry:5000/a/b:c"},
		{"digest", "{tag: v1, proxyServerImage: 'a/b@sha256:00'}", "a/b@sha256:00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			configuration := mustRender(t, tc.values).byName["ManagedProxyConfiguration/cluster-proxy"]
			got, _, _ := unstructured.NestedString(configuration.Object, "spec", "proxyServer", "image")
			if got != tc.want {
				t.Errorf("proxy server's image is %q, want %q", got, tc.want)
			}
		})
	}
}

// TestNamesThatLookLikeNumbers gives objects names that YAML takes for something else than text.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	for _, values := range []string{
		"{imagePullSecrets: ['NAME'], priorityClassName: 'NAME'}",
		"installByPlacement: {placementName: 'NAME', placementNamespace: 'NAME'}",
		"{exposedServicesConfigMapName: 'NAME', exposedServices: [{namespace: a, service: b}]}",
		"proxyAPI: {audit: {policyConfigMap: 'NAME', webhookSecret: 'NAME'}, tracingConfigMap: 'NAME', recording: {enabled: true, existingClaim: 'NAME'}}",
		"proxyAPI: {recording: {enabled: true, service: {url: 'https://a', secret: 'NAME'}}}",
	} {
		for _, name := range []string{"2026", "null"} {
			changed := mustRender(t, strings.ReplaceAll(values, "NAME", name))
			same := mustRender(t, strings.ReplaceAll(values, "NAME", "a-name"))
			for key, object := range same.byName {
				got := changed.byName[strings.ReplaceAll(key, "a-name", name)]
				if got == nil {
					t.Errorf("with %s in %s there is no %s", name, values, key)
					continue
				}
				checkText(t, key, object.Object, got.Object, name)
			}
		}
	}
}

// checkText finds where an object has something else than the text name for "a-name".
func checkText(t *testing.T, path string, object, got any, name string) {
	t.Helper()
	switch object := object.(type) {
	case map[string]any:
		fields, _ := got.(map[string]any)
		for key, value := range object {
			checkText(t, path+"."+key, value, fields[key], name)
		}
	case []any:
		items, _ := got.([]any)
		for i, value := range object {
			if i < len(items) {
				checkText(t, path+"[]", value, items[i], name)
			}
		}
	case string:
		if object == "a-name" && got != name {
			t.Errorf("%s is %v (%T), want the text %q", path, got, got, name)
		}
		if quoted := `"a-name"`; strings.Contains(object, quoted) && got != strings.ReplaceAll(object, quoted, `"`+name+`"`) {
			t.Errorf("%s is %v, want %q in it", path, got, name)
		}
	}
}

func TestRefusedValues(t *testing.T) {
	for _, tc := range []struct{ name, values, want string }{
		{"unknown", "proxyserver: {}", "proxyserver"},
		{"unknown below", "proxyServer: {entrypoint: x}", "entrypoint"},
		{"no replicas", "replicas: 0", "replicas"},
		{"port", "proxyServer: {port: 70000}", "port"},
		{"no proxy servers", "proxyServer: {replicas: 0}", "replicas"},
		{"pull policy", "proxyServer: {imagePullPolicy: Sometimes}", "imagePullPolicy"},
		{"resources", "resources: {manager: {}}", "manager"},
		{"impersonation", "enableImpersonation: false", "enableImpersonation=false is not available"},
		{"cluster profiles", "{enableServiceProxy: false, featureGates: {clusterProfile: true}}", "featureGates.clusterProfile=true needs enableServiceProxy=true"},
		{"external URL", "userServer: {externalURL: 'http://a'}", "externalURL"},
		{"service port", "exposedServices: [{namespace: a, service: b, port: 70000}]", "port"},
		{"annotations of no Service", "proxyServer: {loadBalancerAnnotations: {a: b}}", "needs proxyServer.entrypointLoadBalancer=true"},
		{"log level", "logging: {level: 11}", "level"},
		{"log format", "logging: {format: xml}", "format"},
		{"argument without a value", "extraArgs: {proxyAPI: [--v]}", "extraArgs"},
		{"arguments of another process", "extraArgs: {manager: [--v=2]}", "manager"},
		{"selector of another Deployment", "withoutLookup: {deploymentSelectors: {other: {a: b}}}", "other"},
		{"not enabled", "enabled: false", "condition: cluster-proxy.enabled"},
		{"service protocol", "exposedServices: [{namespace: a, service: b, protocol: udp}]", "protocol"},
		{"signer", "signer: {type: Pigeon}", "signer"},
		{"fleet view", "fleetView: {enabled: sometimes}", "fleetView"},
		{"passes", "passes: {enabled: sometimes}", "passes"},
		{"fields of a fleet view", "fleetView: {spec: {}}", "spec"},
		{"control plane of no Karmada", "karmadaAPI: {controlPlaneCluster: a}", "needs karmadaAPI.enabled=true"},
		{"name of a control plane", "karmadaAPI: {enabled: true, controlPlaneCluster: A_b}", "controlPlaneCluster"},
		{"Karmada without the proxy API", "{enableServiceProxy: false, karmadaAPI: {enabled: true}}", "needs enableServiceProxy=true"},
		{"Karmada without aggregation", "{proxyAPI: {aggregatedAPI: false}, karmadaAPI: {enabled: true}}", "proxyAPI.aggregatedAPI=true"},
		{"runbooks at no URL", "monitoring: {prometheusRule: {runbookURL: FAQ.md}}", "runbookURL"},
		{"interval of a PodMonitor", "monitoring: {podMonitor: {interval: often}}", "interval"},
		{"PodMonitors that nobody may follow", "{networkPolicies: {enabled: true}, monitoring: {podMonitor: {enabled: true}}}", "needs networkPolicies.monitoring"},
		{"half of two CAs", "signer: {type: Provided, provided: {hubCASecretName: a}}", "agentCASecretName"},
		{"size of recordings", "proxyAPI: {recording: {maxFileSize: much}}", "maxFileSize"},
		{"recordings by plain HTTP", "proxyAPI: {recording: {enabled: true, service: {url: 'http://a', secret: b}}}", "url"},
		{"credential of the recordings' Service", "proxyAPI: {recording: {enabled: true, service: {url: 'https://a', secret: b, credential: none}}}", "credential"},
		{"recordings' Service without a Secret", "proxyAPI: {recording: {enabled: true, service: {url: 'https://a'}}}", "recording.service.secret"},
		{"recordings at two places", "proxyAPI: {recording: {enabled: true, existingClaim: c, service: {url: 'https://a', secret: b}}}", "one place"},
		{"recordings that are not on", "proxyAPI: {recording: {service: {url: 'https://a', secret: b}}}", "recording.enabled=true"},
		{"recordings' Service that is not named", "{networkPolicies: {enabled: true}, proxyAPI: {recording: {enabled: true, service: {url: 'https://a', secret: b}}}}", "networkPolicies.recordings"},
		{"two entrypoints", "proxyServer: {entrypointAddress: a, entrypointLoadBalancer: true}", "not both"},
		{"namespace of no Placement", "installByPlacement: {placementNamespace: a}", "needs installByPlacement.placementName"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := render(t, load(t), tc.values)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

// TestValuesWithoutContent has keys below which everything is commented out, which YAML reads as null, and
// Helm as a value without the default.
func TestValuesWithoutContent(t *testing.T) {
	for _, name := range []string{"proxyServer", "userServer", "installByPlacement", "registry", "proxyAgentImage", "enableKubeApiProxy"} {
		_, err := render(t, load(t), name+":")
		if err == nil || !strings.Contains(err.Error(), "missing property '"+name+"'") {
			t.Errorf("%s: null: got error %v, want one that says what is missing", name, err)
		}
	}
}

// Every value changes something, so that none is accepted and ignored.
func TestEveryValueIsRead(t *testing.T) {
	text := func(values string) string {
		o := mustRender(t, values)
		var all strings.Builder
		for _, name := range slices.Sorted(maps.Keys(o.byName)) {
			raw, err := o.byName[name].MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			all.Write(raw)
		}
		return all.String()
	}
	changes := map[string]string{
		"registry": "registry: a", "image": "image: a", "tag": "tag: a", "proxyServerImage": "proxyServerImage: a", "proxyAgentImage": "proxyAgentImage: a",
		"imagePullSecrets": "imagePullSecrets: [a]", "replicas": "replicas: 2", "spokeAddonNamespace": "spokeAddonNamespace: a",
		"proxyServer": "proxyServer: {imagePullPolicy: Always}", "installByPlacement": "installByPlacement: {placementName: a, placementNamespace: b}",
		"enableKubeApiProxy": "enableKubeApiProxy: false", "enableServiceProxy": "enableServiceProxy: false", "userServer": "userServer: {enabled: false}",
		"networkPolicies": "networkPolicies: {enabled: true}", "resources": "resources: {proxyAPI: {limits: {memory: 1Gi}}}",
		"nodeSelector": "nodeSelector: {a: b}", "tolerations": "tolerations: [{operator: Exists}]", "affinity": "affinity: {nodeAffinity: {}}",
		"topologySpreadConstraints": "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
		"priorityClassName":         "priorityClassName: a", "podLabels": "podLabels: {a: b}", "podAnnotations": "podAnnotations: {a: b}",
		"podDisruptionBudget": "{replicas: 2, podDisruptionBudget: {enabled: false}}", "proxyAPI": "proxyAPI: {gracefulShutdownTimeoutSeconds: 5}",
		"terminationGracePeriodSeconds": "terminationGracePeriodSeconds: 5", "proxyConfig": "proxyConfig: {httpsProxy: a}",
		"featureGates": "featureGates: {clusterProfile: true}", "logging": "logging: {level: 2}", "extraArgs": "extraArgs: {proxyAPI: [--a=b]}",
		"withoutLookup": "withoutLookup: {crd: false}", "fleetView": "fleetView: {enabled: false}", "passes": "passes: {enabled: false}", "karmadaAPI": "karmadaAPI: {enabled: true}", "ui": "ui: {enabled: true}", "monitoring": "monitoring: {prometheusRule: {enabled: true}}",
		"signer": "signer: {type: CertManager}", "secretPropagationSeconds": "secretPropagationSeconds: 5",
		// Refused unless they have their default; TestRefusedValues.
		"enableImpersonation": "",
		"exposedServices":     "exposedServices: [{namespace: a, service: b}]", "exposedServicesConfigMapName": "exposedServicesConfigMapName: a",
	}
	unchanged := map[string]string{}
	for _, base := range []string{"", "replicas: 2"} {
		unchanged[base] = text(base)
	}
	for name := range load(t).Values {
		values, ok := changes[name]
		if !ok {
			t.Errorf("value %q: the test does not know what it changes", name)
			continue
		}
		base := ""
		if name == "podDisruptionBudget" {
			base = "replicas: 2"
		}
		if values != "" && text(values) == unchanged[base] {
			t.Errorf("%s changes nothing", values)
		}
	}
}

// TestDisruptionBudgetsHaveABound wants none without: it would let no pod be evicted, and no node be
// drained.
func TestDisruptionBudgetsHaveABound(t *testing.T) {
	for value, want := range map[string]any{"null": 1., "0": 0., "2": 2., "50%": "50%"} {
		rendered := mustRender(t, "{replicas: 3, podDisruptionBudget: {maxUnavailable: "+value+"}}")
		for _, name := range []string{"cluster-proxy-addon-manager", "cluster-proxy-addon-user"} {
			if got := rendered.byName["PodDisruptionBudget/"+name].Object["spec"].(map[string]any)["maxUnavailable"]; got != want {
				t.Errorf("maxUnavailable: %s gives %s %v, want %v", value, name, got, want)
			}
		}
	}
}

func TestProxyAPIIsOptional(t *testing.T) {
	values := strings.Replace(everything, "karmadaAPI: {enabled: true, controlPlaneCluster: local-cluster}", "enableServiceProxy: false", 1)
	for name := range mustRender(t, values).byName {
		if strings.Contains(name, "/cluster-proxy-addon-user") || strings.Contains(name, ":proxy-api") || strings.HasPrefix(name, "APIService/") || strings.HasPrefix(name, "FleetView/") {
			t.Errorf("%s is made although enableServiceProxy is false", name)
		}
	}
}

func TestNotes(t *testing.T) {
	notes := mustRender(t, "").notes
	for _, want := range []string{"kubectl get managedclusteraddons", "cluster-proxy-addon-user." + namespace + ".svc:9092", "replicas=1", "port-forward", "networkPolicies.enabled is false"} {
		if !strings.Contains(notes, want) {
			t.Errorf("NOTES.txt does not contain %q:\n%s", want, notes)
		}
	}
	if notes := mustRender(t, "{replicas: 2, proxyServer: {entrypointAddress: a}, networkPolicies: {enabled: true}}").notes; strings.Contains(notes, "NOTE:") {
		t.Errorf("NOTES.txt warns although nothing is wrong:\n%s", notes)
	}
}

// TestMemoryLimits wants each process to have a memory limit that Go knows of, and values of
// one's own to replace it. The proxy servers' is in what the addon manager is told.
func TestMemoryLimits(t *testing.T) {
	for values, want := range map[string]map[string]string{
		"": {"addon-manager": "1Gi", "proxy-api": "2Gi", "proxy-server": "1Gi"},
		"resources: {addonManager: {limits: {memory: 256Mi}}, proxyAPI: {limits: {memory: 4Gi}}, proxyServer: {limits: {memory: 3Gi}}}": {
			"addon-manager": "256Mi", "proxy-api": "4Gi", "proxy-server": "3Gi"},
		"resources: {addonManager: {limits: null}, proxyAPI: {limits: {memory: null}}, proxyServer: null}": {
			"addon-manager": "0", "proxy-api": "0"},
	} {
		got := map[string]string{}
		for _, deployment := range mustRender(t, values).deployments(t) {
			container := deployment.Spec.Template.Spec.Containers[0]
			limit := container.Resources.Limits.Memory()
			name := container.Args[0]
			got[name] = limit.String()
			told := slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool {
				return v.Name == "GOMEMLIMIT" && v.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
			})
			if told == limit.IsZero() {
				t.Errorf("with values %q %s has limit %s, and Go is told of one: %t", values, name, limit, told)
			}
			for _, arg := range container.Args {
				if text, ok := strings.CutPrefix(arg, "--proxy-server-pods="); ok {
					var pods struct{ Resources corev1.ResourceRequirements }
					if err := json.Unmarshal([]byte(text), &pods); err != nil {
						t.Fatal(err)
					}
					got["proxy-server"] = pods.Resources.Limits.Memory().String()
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with values %q the limits are (-want +got):\n%s", values, diff)
		}
	}
}

func TestPullSecretsReachAgents(t *testing.T) {
	o := mustRender(t, everything)
	for _, deployment := range o.deployments(t) {
		if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "pull"}}, deployment.Spec.Template.Spec.ImagePullSecrets); diff != "" {
			t.Errorf("%s (-want +got):\n%s", deployment.Name, diff)
		}
	}
	got, _, _ := unstructured.NestedStringSlice(o.byName["ManagedProxyConfiguration/cluster-proxy"].Object, "spec", "proxyAgent", "imagePullSecrets")
	if diff := cmp.Diff([]string{"pull"}, got); diff != "" {
		t.Errorf("agents' pull secrets (-want +got):\n%s", diff)
	}
}

// Nobody gets to clusters by the mere installation.
func TestUsersAreLetInByAValue(t *testing.T) {
	const binding = "ClusterRoleBinding/cluster-proxy-user:authenticated"
	if mustRender(t, "").byName[binding] != nil {
		t.Error("everybody is let in by default")
	}
	if mustRender(t, "proxyAPI: {allowAuthenticated: true}").byName[binding] == nil {
		t.Error("proxyAPI.allowAuthenticated binds nobody")
	}
	for _, rule := range mustRender(t, "").rules(t)["ClusterRole/cluster-proxy-viewer"] {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) || slices.Contains(rule.Resources, "clusters/stream") {
				t.Errorf("a viewer may %s %v", verb, rule.Resources)
			}
		}
	}
}

// Recordings are on the claim, or on a volume of the pod's own.
func TestRecording(t *testing.T) {
	for values, want := range map[string]string{
		"{}": "", "{recording: {enabled: true}}": "emptyDir", "{recording: {enabled: true, existingClaim: tapes, fsGroup: 7}}": "tapes",
		"{recording: {enabled: true, service: {url: 'https://a/b', secret: c}}}": "", "{recording: {enabled: true, service: {url: 'https://a/b', secret: c, credential: certificate}}}": "",
	} {
		for _, deployment := range mustRender(t, "proxyAPI: "+values).deployments(t) {
			pod, got := deployment.Spec.Template.Spec, ""
			for _, volume := range pod.Volumes {
				switch {
				case volume.Name != "recordings":
				case volume.PersistentVolumeClaim != nil:
					got = volume.PersistentVolumeClaim.ClaimName
				case volume.EmptyDir != nil:
					got = "emptyDir"
				}
			}
			wantHere := want
			if deployment.Name != "cluster-proxy-addon-user" {
				wantHere = ""
			}
			args := pod.Containers[0].Args
			if got != wantHere || slices.Contains(args, "--recording-dir=/recordings") != (got != "") {
				t.Errorf("%s with %q: volume %q, want %q; arguments %q", deployment.Name, values, got, wantHere, args)
			}
			if group := pod.SecurityContext.FSGroup; (group != nil) != (got == "tapes") {
				t.Errorf("%s with %q: fsGroup %v", deployment.Name, values, group)
			}
		}
	}
}

// Recordings go to a Service with the credential of a Secret.
func TestRecordingService(t *testing.T) {
	for credential, want := range map[string][]string{
		"token":       {"--recording-url=https://a:8443/b", "--recording-ca-cert=/recording-service/ca.crt", "--recording-token-file=/recording-service/token"},
		"certificate": {"--recording-url=https://a:8443/b", "--recording-ca-cert=/recording-service/ca.crt", "--recording-cert=/recording-service/tls.crt", "--recording-key=/recording-service/tls.key"},
	} {
		o := mustRender(t, "{networkPolicies: {enabled: true, recordings: [{podSelector: {matchLabels: {app: recorder}}}]}, proxyAPI: {recording: {enabled: true, service: {url: 'https://a:8443/b', secret: c, credential: "+credential+"}}}}")
		for _, deployment := range o.deployments(t) {
			if deployment.Name != "cluster-proxy-addon-user" {
				continue
			}
			pod := deployment.Spec.Template.Spec
			got := slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(arg string) bool {
				return !strings.HasPrefix(arg, "--recording-") || strings.HasPrefix(arg, "--recording-max-")
			})
			if !slices.Equal(got, want) {
				t.Errorf("%s: arguments %q, want %q", credential, got, want)
			}
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
				return v.Name == "recording-service" && v.Secret != nil && v.Secret.SecretName == "c"
			}) || !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == "recording-service" && m.MountPath == "/recording-service" && m.ReadOnly
			}) {
				t.Errorf("%s: volumes %v, mounts %v; want Secret c", credential, pod.Volumes, pod.Containers[0].VolumeMounts)
			}
		}
		policy, err := o.byName["NetworkPolicy/cluster-proxy-addon-user-network-policy"].MarshalJSON()
		if err != nil || !strings.Contains(string(policy), `{"ports":[{"port":8443,"protocol":"TCP"}],"to":[{"podSelector":{"matchLabels":{"app":"recorder"}}}]}`) {
			t.Errorf("the policy is %v %s, want the Service's pods in it", err, policy)
		}
	}
}

// The addon manager puts ca.crt of that Secret into the APIService; without it the hub's kube-apiserver
// refuses the certificate.
func TestNotesSayWhatTheServingSecretHolds(t *testing.T) {
	notes := mustRender(t, "userServer: {enabled: false}").notes
	for _, want := range []string{"--from-file=tls.crt=", "--from-file=tls.key=", "--from-file=ca.crt=", "cluster-proxy-addon-user." + namespace + ".svc:\n"} {
		if !strings.Contains(notes, want) {
			t.Errorf("NOTES.txt does not contain %q:\n%s", want, notes)
		}
	}
}
