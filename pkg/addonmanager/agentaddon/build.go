package agentaddon

import (
	"context"
	"fmt"

	"open-cluster-management.io/addon-framework/pkg/addonfactory"
	"open-cluster-management.io/addon-framework/pkg/agent"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/manifests"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Build returns what addon-framework asks for.
func (a *Addon) Build() (agent.AgentAddon, error) {
	built, err := addonfactory.NewAgentAddonFactory(identity.AddonName, manifests.FS, manifests.Dir).
		WithConfigGVRs(configurationGVR, utils.AddOnDeploymentConfigGVR).
		WithConfigCheckEnabledOption().
		WithGetValuesFuncs(a.getValues).
		WithAgentInstallNamespace(a.installNamespace).
		WithAgentRegistrationOption(a.registration()).
		WithAgentDeployTriggerClusterFilter(concernsAgent).
		BuildHelmAgentAddon()
	if err != nil {
		return nil, err
	}
	return &once{AgentAddon: built, addon: a}, nil
}

// concernsAgent reports whether a ManagedCluster changed in what manifests are made
// of.
func concernsAgent(before, now *clusterv1.ManagedCluster) bool {
	for _, label := range []string{clusterv1beta2.ClusterSetLabel, localClusterLabel} {
		if before.Labels[label] != now.Labels[label] {
			return true
		}
	}
	for _, annotation := range []string{imageRegistriesAnnotation, nodeSelectorAnnotation} {
		if before.Annotations[annotation] != now.Annotations[annotation] {
			return true
		}
	}
	return false
}

func (a *Addon) installNamespace(addon *addonv1alpha1.ManagedClusterAddOn) (string, error) {
	if v, ok := a.rendering.Load(addon); ok {
		return v.(*values).namespace, nil
	}
	if err := a.checkReferences(context.Background(), addon); err != nil {
		return "", err
	}
	deployment, err := utils.GetDesiredAddOnDeploymentConfig(addon, a.DeploymentConfigs)
	if err != nil {
		return "", fmt.Errorf("reading the AddOnDeploymentConfig: %w", err)
	}
	return a.namespaceOf(context.Background(), addon, deployment)
}
