package chart

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var update = flag.Bool("update", false, "write what the chart renders into testdata/rendered")

// sets are values by the names of their files in testdata/rendered. Each file but the first
// has what differs from it.
var sets = map[string]string{
	"default": "", "everything": everything,
	"hostname":              "proxyServer: {entrypointAddress: hub.example.com, port: 443}",
	"loadbalancer":          "proxyServer: {entrypointLoadBalancer: true, loadBalancerAnnotations: {example.com/internal: 'true', b: c}}",
	"images":                "{tag: v1, proxyServerImage: 'registry:5000/a/b', proxyAgentImage: 'a/b@sha256:00'}",
	"images-tag":            "{tag: v1, proxyServerImage: 'registry:5000/a/b:c'}",
	"images-upstream":       "{registry: a, proxyServerImage: quay.io/open-cluster-management/cluster-proxy, proxyAgentImage: quay.io/open-cluster-management/cluster-proxy}",
	"servers":               "{replicas: 2, proxyServer: {replicas: 5}, proxyAgent: {replicas: 1}}",
	"production":            production,
	"limits":                "resources: {addonManager: {limits: {memory: 256Mi}}, proxyAPI: {limits: {memory: 4Gi}}, proxyServer: {limits: {memory: 3Gi}}}",
	"no-limits":             "resources: {addonManager: {limits: null}, proxyAPI: {limits: {memory: null}}, proxyServer: null}",
	"no-proxy-api":          "enableServiceProxy: false",
	"no-serving":            "userServer: {enabled: false}",
	"no-view":               "fleetView: {enabled: false}",
	"without-lookup":        "withoutLookup: {deploymentSelectors: {cluster-proxy-addon-manager: {old: label}}, clusterSetBinding: false, crd: false}",
	"pod-labels":            "podLabels: {app: mesh, component: mine}",
	"disruptions":           "{replicas: 3, podDisruptionBudget: {maxUnavailable: null}}",
	"disruptions-percent":   "{replicas: 3, podDisruptionBudget: {maxUnavailable: '50%'}}",
	"fleet-index":           "fleetIndex: {enabled: true}",
	"access":                "{access: {users: [jane, 'system:serviceaccount:ci:deployer'], groups: [ops], role: viewer, clusterRole: edit}, waitForClustersSeconds: 240}",
	"karmada":               "karmadaAPI: {enabled: true}",
	"recording":             "proxyAPI: {recording: {enabled: true}}",
	"recording-token":       "{networkPolicies: {enabled: true, recordings: [{podSelector: {matchLabels: {app: recorder}}}]}, proxyAPI: {recording: {enabled: true, service: {url: 'https://a:8443/b', secret: c}}}}",
	"recording-certificate": "proxyAPI: {recording: {enabled: true, service: {url: 'https://a/b', secret: c, credential: certificate}}}",
}

// production are the values for more than a trial, which a release has beside the chart.
var production = func() string {
	content, err := os.ReadFile("../../charts/cluster-proxy/values-production.yaml")
	if err != nil {
		panic(err)
	}
	return string(content)
}()

// TestRendered holds what the chart makes, object by object, to testdata/rendered: a change of
// the chart is read there. hack/update-texts.sh writes it.
func TestRendered(t *testing.T) {
	plain := lines(mustRender(t, "").byName)
	for name, values := range sets {
		t.Run(name, func(t *testing.T) {
			got := lines(mustRender(t, values).byName)
			if name != "default" {
				got = difference(plain, got)
			}
			path := "testdata/rendered/" + name + ".txt"
			if *update {
				if err := os.WriteFile(path, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSuffix(string(content), "\n"), "\n"), got); diff != "" {
				t.Errorf("values %q (-%s +chart):\n%s", values, path, diff)
			}
		})
	}
}

// lines are the fields of objects, sorted. Other tests hold CRDs and rules to their files.
func lines(objects map[string]*unstructured.Unstructured) (out []string) {
	for name, object := range objects {
		kind := object.GetKind()
		for field, value := range object.Object {
			if kind != "CustomResourceDefinition" && kind != "PrometheusRule" && (kind != "ConfigMap" || !strings.Contains(name, "dashboard")) || field == "metadata" {
				out = flatten(out, name+" "+field, value)
			}
		}
	}
	slices.Sort(out)
	return out
}

// flatten appends a line for each leaf. Items have their name in the path, or what they are.
func flatten(out []string, path string, value any) []string {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if !strings.HasPrefix(key, "app.kubernetes.io/") && key != "helm.sh/chart" {
				out = flatten(out, path+"."+key, field)
			}
		}
		if len(value) > 0 {
			return out
		}
	case []any:
		for i, item := range value {
			key := ""
			if fields, ok := item.(map[string]any); ok {
				key = fmt.Sprint(i)
				if name, ok := fields["name"]; ok {
					key = fmt.Sprint(name)
				}
			}
			out = flatten(out, path+"["+key+"]", item)
		}
		if len(value) > 0 {
			return out
		}
	}
	return append(out, fmt.Sprintf("%s: %s", path, strings.ReplaceAll(fmt.Sprint(value), "\n", "\\n")))
}

// difference is what is in one of two sorted lists. Of an object that is gone, it is the name.
func difference(before, after []string) (out []string) {
	gone := ""
	for _, side := range []struct {
		mark     string
		of, than []string
	}{{"-", before, after}, {"+", after, before}} {
		for _, line := range side.of {
			name, _, _ := strings.Cut(line, " ")
			if i, found := slices.BinarySearch(side.than, name); side.mark == "-" && (i == len(side.than) || !found && !strings.HasPrefix(side.than[i], name+" ")) {
				if gone != name {
					out = append(out, side.mark+name)
				}
				gone = name
			} else if _, found := slices.BinarySearch(side.than, line); !found {
				out = append(out, side.mark+line)
			}
		}
	}
	return out
}
