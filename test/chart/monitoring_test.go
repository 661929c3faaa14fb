package chart

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestRunbooks wants a link with each alert if a value says where they are explained, and
// none otherwise: the chart cannot know where its runbooks are published. A URL of the folder has a page for
// each alert.
func TestRunbooks(t *testing.T) {
	for value, want := range map[string]string{
		"":                                       "",
		"https://git.example.com/docs/runbooks/": "https://git.example.com/docs/runbooks/ClusterProxyAgentAway.md",
		"https://wiki.example.com/Alerts#":       "https://wiki.example.com/Alerts#clusterproxyagentaway",
	} {
		rules := mustRender(t, fmt.Sprintf("monitoring: {prometheusRule: {enabled: true, runbookURL: %q}}", value)).byName["PrometheusRule/cluster-proxy"]
		groups, _, err := unstructured.NestedSlice(rules.Object, "spec", "groups")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, group := range groups {
			for _, r := range group.(map[string]any)["rules"].([]any) {
				name, _, _ := unstructured.NestedString(r.(map[string]any), "alert")
				url, ok, _ := unstructured.NestedString(r.(map[string]any), "annotations", "runbook_url")
				if hasLink := name != "" && value != ""; ok != hasLink || hasLink && !strings.EqualFold(strings.TrimSuffix(url, ".md"), value+name) {
					t.Errorf("with %q, alert %q has runbook_url %q", value, name, url)
				}
				found = found || name == "ClusterProxyAgentAway" && url == want
			}
		}
		if !found {
			t.Errorf("with %q, no ClusterProxyAgentAway leads to %q", value, want)
		}
	}
}

// TestRulesAreThoseOfTheFile wants the PrometheusRule to have the groups of the file,
// without those about the proxy API where there is none.
func TestRulesAreThoseOfTheFile(t *testing.T) {
	content, err := os.ReadFile("../../charts/cluster-proxy/files/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	got := mustRender(t, everything).byName["PrometheusRule/cluster-proxy"]
	groups, _, err := unstructured.NestedSlice(got.Object, "spec", "groups")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file["groups"], any(groups)); diff != "" {
		t.Errorf("groups (-file +chart):\n%s", diff)
	}
	without := mustRender(t, "{enableServiceProxy: false, monitoring: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}}}")
	raw, err := without.byName["PrometheusRule/cluster-proxy"].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), `-api"`) || !strings.Contains(string(raw), "ClusterProxyAgentAway") || without.byName["PodMonitor/cluster-proxy-addon-user"] != nil {
		t.Errorf("without the proxy API the chart makes\n%s\nand %v", raw, slices.Sorted(maps.Keys(without.byName)))
	}
}
