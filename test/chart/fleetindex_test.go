package chart

import (
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
)

// TestVolumeOfTheIndex wants a group by which the process may write, unless OpenShift chooses one.
func TestVolumeOfTheIndex(t *testing.T) {
	for api, want := range map[string]bool{"apps/v1": true, "security.openshift.io/v1": false} {
		hub := chartutil.DefaultCapabilities.Copy()
		hub.APIVersions = slices.Concat(hub.APIVersions, chartutil.VersionSet{api})
		rendered, err := renderWith(t, load(t), "fleetIndex: {enabled: true}", hub)
		if err != nil {
			t.Fatal(err)
		}
		pod := as[appsv1.Deployment](t, rendered.byName["Deployment/cluster-proxy-fleet-index"]).Spec.Template.Spec
		if got := pod.SecurityContext.FSGroup != nil; got != want {
			t.Errorf("a hub with %s: fsGroup is set: %t, want %t", api, got, want)
		}
	}
	rendered := mustRender(t, "fleetIndex: {enabled: true, persistence: {enabled: false}}")
	pod := as[appsv1.Deployment](t, rendered.byName["Deployment/cluster-proxy-fleet-index"]).Spec.Template.Spec
	if volume := pod.Volumes[len(pod.Volumes)-1]; volume.EmptyDir == nil || volume.EmptyDir.SizeLimit.String() != "10Gi" || rendered.byName["PersistentVolumeClaim/cluster-proxy-fleet-index"] != nil {
		t.Errorf("the volume of a pod's own is %+v, or there is a claim", volume)
	}
}

// TestWithoutAnIndex wants nothing of it, nor rules and dashboards about it, by default.
func TestWithoutAnIndex(t *testing.T) {
	for name, object := range mustRender(t, "{replicas: 2, networkPolicies: {enabled: true, monitoring: [{podSelector: {}}]}, monitoring: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboards: {enabled: true}}}").byName {
		if object.GetKind() == "CustomResourceDefinition" {
			continue
		}
		raw, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"fleet-index", "cluster_proxy_index"} {
			if strings.Contains(string(raw), word) {
				t.Errorf("%s is about %s", name, word)
			}
		}
	}
}
