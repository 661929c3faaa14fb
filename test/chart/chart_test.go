package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// everything switches on all that is optional.
const everything = `
replicas: 2
networkPolicies: {enabled: true, clients: [{namespaceSelector: {matchLabels: {a: b}}}], monitoring: [{namespaceSelector: {matchLabels: {c: d}}}], recordings: [], databases: [{podSelector: {matchLabels: {e: f}}}]}
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
extraArgs: {addonManager: [--leader-elect=false], proxyAPI: [--max-requests-per-user=1], proxyServer: [--keepalive-time=20s], proxyAgent: [--sync-interval=2s], fleetIndex: [--max-rows-per-cluster=1]}
karmadaAPI: {enabled: true, controlPlaneCluster: local-cluster}
ui: {enabled: true}
access: {users: [jane], groups: [ops], role: viewer}
waitForClustersSeconds: 60
fleetIndex: {enabled: true, replicas: 2, staleRightsSeconds: 0, store: {secret: s, key: k, port: 5433}}
monitoring: {podMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}, prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboards: {enabled: true, annotations: {folder: a}}}
proxyAPI: {allowAuthenticated: true, clusterDomain: c.example.com, audiences: [a, b], allowAnonymous: true, hubOutageGraceSeconds: 0, limits: {requestsPerUser: 0}, revalidateStreamsSeconds: 0, audit: {policyConfigMap: p, webhookSecret: w}, tracingConfigMap: t, recording: {enabled: true, existingClaim: r, fsGroup: 65532, clusters: [a], clusterSets: [b], failClosed: true, stdin: true}}
`

// TestNamesThatLookLikeNumbers gives objects names that YAML takes for something else than text.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	for _, values := range []string{
		"{imagePullSecrets: ['NAME'], priorityClassName: 'NAME'}",
		"installByPlacement: {placementName: 'NAME', placementNamespace: 'NAME'}",
		"{exposedServicesConfigMapName: 'NAME', exposedServices: [{namespace: a, service: b}]}",
		"proxyAPI: {audit: {policyConfigMap: 'NAME', webhookSecret: 'NAME'}, tracingConfigMap: 'NAME', recording: {enabled: true, existingClaim: 'NAME'}}",
		"proxyAPI: {recording: {enabled: true, service: {url: 'https://a', secret: 'NAME'}}}",
		"fleetIndex: {enabled: true, store: {secret: 'NAME', key: 'NAME'}}",
		"fleetIndex: {enabled: true, persistence: {storageClass: 'NAME'}}",
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
		{"runbooks at no URL", "monitoring: {prometheusRule: {runbookURL: docs/runbooks/}}", "runbookURL"},
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
		{"replicas of an index in SQLite", "fleetIndex: {enabled: true, replicas: 2}", "fleetIndex.replicas=2 needs PostgreSQL"},
		{"Secrets in the index", "fleetIndex: {enabled: true, resources: [pods, secrets]}", "no Secrets are indexed"},
		{"all in the index", "fleetIndex: {enabled: true, resources: ['*']}", "resources"},
		{"nothing in the index", "fleetIndex: {enabled: true, resources: []}", "resources"},
		{"index without the proxy API", "{enableServiceProxy: false, fleetIndex: {enabled: true}}", "needs enableServiceProxy=true"},
		{"database that is not named", "{networkPolicies: {enabled: true}, fleetIndex: {enabled: true, store: {secret: a}}}", "networkPolicies.databases"},
		{"access of administrators", "access: {groups: ['system:masters']}", "access has system:masters"},
		{"access of everybody", "access: {groups: ['system:authenticated']}", "is not asserted there"},
		{"access to nothing", "{enableServiceProxy: false, access: {users: [jane]}}", "access needs enableServiceProxy=true"},
		{"role on the hub", "access: {users: [jane], role: admin}", "role"},
		{"waiting", "waitForClustersSeconds: -1", "waitForClustersSeconds"},
		{"chart of no release", "registry: ''", "helm upgrade --install cluster-proxy oci://<registry>/charts/cluster-proxy"},
		{"agents without a replica", "proxyAgent: {replicas: 0}", "replicas"},
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
		"proxyServer": "proxyServer: {imagePullPolicy: Always}", "proxyAgent": "proxyAgent: {replicas: 2}", "installByPlacement": "installByPlacement: {placementName: a, placementNamespace: b}",
		"enableKubeApiProxy": "enableKubeApiProxy: false", "enableServiceProxy": "enableServiceProxy: false", "userServer": "userServer: {enabled: false}",
		"networkPolicies": "networkPolicies: {enabled: true}", "resources": "resources: {proxyAPI: {limits: {memory: 1Gi}}}",
		"nodeSelector": "nodeSelector: {a: b}", "tolerations": "tolerations: [{operator: Exists}]", "affinity": "affinity: {nodeAffinity: {}}",
		"topologySpreadConstraints": "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
		"priorityClassName":         "priorityClassName: a", "podLabels": "podLabels: {a: b}", "podAnnotations": "podAnnotations: {a: b}",
		"podDisruptionBudget": "{replicas: 2, podDisruptionBudget: {enabled: false}}", "proxyAPI": "proxyAPI: {gracefulShutdownTimeoutSeconds: 5}",
		"terminationGracePeriodSeconds": "terminationGracePeriodSeconds: 5", "proxyConfig": "proxyConfig: {httpsProxy: a}",
		"featureGates": "featureGates: {clusterProfile: true}", "logging": "logging: {level: 2}", "extraArgs": "extraArgs: {proxyAPI: [--a=b]}",
		"withoutLookup": "withoutLookup: {crd: false}", "fleetView": "fleetView: {enabled: false}", "passes": "passes: {enabled: false}", "fleetIndex": "fleetIndex: {enabled: true}", "karmadaAPI": "karmadaAPI: {enabled: true}", "ui": "ui: {enabled: true}", "access": "access: {users: [jane]}", "waitForClustersSeconds": "waitForClustersSeconds: 60", "monitoring": "monitoring: {prometheusRule: {enabled: true}}",
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
