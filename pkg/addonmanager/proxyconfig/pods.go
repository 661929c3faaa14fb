package proxyconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Pods are settings of the proxy servers' pods that a ManagedProxyConfiguration
// has no fields for. The hub chart gives them; empty ones leave the default.
type Pods struct {
	PriorityClassName         string                            `json:"priorityClassName,omitempty"`
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	Resources                 *corev1.ResourceRequirements      `json:"resources,omitempty"`
	Labels                    map[string]string                 `json:"labels,omitempty"`
	Annotations               map[string]string                 `json:"annotations,omitempty"`
	Env                       []corev1.EnvVar                   `json:"env,omitempty"`
}

// ParsePods reads Pods from JSON; empty text means none. A field that does not
// exist is an error.
func ParsePods(text string) (Pods, error) {
	var p Pods
	if text == "" {
		return p, nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("reading settings of the proxy servers' pods: %w", err)
	}
	return p, nil
}

// appLabel is how the commands in OCM's documentation select the addon's pods on
// the hub. Nothing of ours selects by it.
const appLabel = "app"

// apply changes what is set. Labels and annotations never replace our own, by
// which pods are selected; a label app that is set replaces the usual one.
func (p Pods) apply(template *corev1.PodTemplateSpec) {
	spec := &template.Spec
	spec.PriorityClassName = p.PriorityClassName
	if p.Affinity != nil {
		spec.Affinity = p.Affinity
	}
	if len(p.TopologySpreadConstraints) > 0 {
		spec.TopologySpreadConstraints = p.TopologySpreadConstraints
	}
	if p.Resources != nil {
		spec.Containers[0].Resources = *p.Resources
	}
	if !spec.Containers[0].Resources.Limits.Memory().IsZero() {
		// Go's garbage collector works harder when memory comes near it.
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"},
		}})
	}
	spec.Containers[0].Env = append(spec.Containers[0].Env, p.Env...)
	template.Labels = merged(merged(map[string]string{appLabel: identity.AddonName}, p.Labels), template.Labels)
	template.Annotations = merged(p.Annotations, template.Annotations)
}

func merged(theirs, ours map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, theirs)
	maps.Copy(out, ours)
	return out
}
