package proxyconfig

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPods(t *testing.T) {
	if _, err := ParsePods(`{"priorityClass":"x"}`); err == nil {
		t.Error("a field that does not exist was let by")
	}
	pods, err := ParsePods(`{"priorityClassName":"high","resources":{"limits":{"memory":"1Gi"}},"labels":{"a":"b","own":"theirs"},"annotations":{"c":"d"},"env":[{"name":"HTTPS_PROXY","value":"p"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy-server"}}, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{spread("zone")}}}
	template.Labels = map[string]string{"own": "ours"}
	pods.apply(&template)
	if template.Spec.PriorityClassName != "high" || template.Spec.Containers[0].Resources.Limits.Memory().String() != "1Gi" || template.Annotations["c"] != "d" {
		t.Errorf("the pods do not have what was set: %+v", template)
	}
	if env := template.Spec.Containers[0].Env; len(env) != 2 || env[1].Name != "HTTPS_PROXY" || env[0].Name != "GOMEMLIMIT" || env[0].ValueFrom.ResourceFieldRef.Resource != "limits.memory" {
		t.Errorf("environment %v does not tell Go of the memory limit", env)
	}
	if template.Labels["own"] != "ours" || template.Labels["a"] != "b" {
		t.Errorf("labels are %v: ours must stay, and theirs be added", template.Labels)
	}
	if len(template.Spec.TopologySpreadConstraints) != 1 {
		t.Error("a default was taken away though nothing took its place")
	}
	// The commands in OCM's documentation find pods by it.
	if template.Labels["app"] != "cluster-proxy" {
		t.Errorf("labels are %v, want app=cluster-proxy", template.Labels)
	}
	template.Labels = map[string]string{"own": "ours"}
	if (Pods{Labels: map[string]string{"app": "mesh"}}).apply(&template); template.Labels["app"] != "mesh" {
		t.Errorf("labels are %v: a label app that is set must stay", template.Labels)
	}
}
