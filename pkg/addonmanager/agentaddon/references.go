//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package agentaddon

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var configurationGVR = v1alpha1.GroupVersion.WithResource("managedproxyconfigurations")

// checkReferences returns an error for a reference of an addon to a configuration that
// is not the hub's. They are in the status, which OCM lets each cluster write: a
// cluster could have another tenant's configuration rendered for it. So each must be
// named where clusters cannot write.
func (a *Addon) checkReferences(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn) error {
	var named map[addonv1alpha1.AddOnConfig]bool
	for _, reference := range addon.Status.ConfigReferences {
		if !ours(reference.ConfigGroupResource) || reference.DesiredConfig == nil || reference.DesiredConfig.Name == "" {
			continue // is not read
		}
		if named == nil {
			var err error
			if named, err = a.namedConfigs(ctx, addon); err != nil {
				return err
			}
		}
		config := addonv1alpha1.AddOnConfig{ConfigGroupResource: reference.ConfigGroupResource, ConfigReferent: reference.DesiredConfig.ConfigReferent}
		if !named[config] {
			return fmt.Errorf("status.configReferences of the ManagedClusterAddOn has %s %q of namespace %q, which neither its spec.configs nor the ClusterManagementAddOn names: name it there",
				config.Resource, config.Name, config.Namespace)
		}
	}
	return nil
}

func ours(kind addonv1alpha1.ConfigGroupResource) bool {
	return kind == addonv1alpha1.ConfigGroupResource{Group: configurationGVR.Group, Resource: configurationGVR.Resource} ||
		kind == addonv1alpha1.ConfigGroupResource{Group: utils.AddOnDeploymentConfigGVR.Group, Resource: utils.AddOnDeploymentConfigGVR.Resource}
}

// namedConfigs are the configurations that the hub names for an addon: in its
// spec and in the ClusterManagementAddOn, whose status has those that a rollout
// comes from.
func (a *Addon) namedConfigs(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn) (map[addonv1alpha1.AddOnConfig]bool, error) {
	named := map[addonv1alpha1.AddOnConfig]bool{
		{
			ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: configurationGVR.Group, Resource: configurationGVR.Resource},
			ConfigReferent:      addonv1alpha1.ConfigReferent{Name: identity.AddonName},
		}: true, // it is read without a reference too
	}
	for _, config := range addon.Spec.Configs {
		named[config] = true
	}
	var management addonv1alpha1.ClusterManagementAddOn
	err := a.Reader.Get(ctx, client.ObjectKey{Name: identity.AddonName}, &management)
	if apierrors.IsNotFound(err) {
		return named, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterManagementAddOn %q: %w", identity.AddonName, err)
	}
	for _, supported := range management.Spec.SupportedConfigs {
		if supported.DefaultConfig != nil {
			named[addonv1alpha1.AddOnConfig{ConfigGroupResource: supported.ConfigGroupResource, ConfigReferent: *supported.DefaultConfig}] = true
		}
	}
	for _, placement := range management.Spec.InstallStrategy.Placements {
		for _, config := range placement.Configs {
			named[config] = true
		}
	}
	for _, progression := range management.Status.InstallProgressions {
		for _, reference := range progression.ConfigReferences {
			for _, config := range []*addonv1alpha1.ConfigSpecHash{reference.DesiredConfig, reference.LastAppliedConfig, reference.LastKnownGoodConfig} {
				if config != nil {
					named[addonv1alpha1.AddOnConfig{ConfigGroupResource: reference.ConfigGroupResource, ConfigReferent: config.ConfigReferent}] = true
				}
			}
		}
	}
	return named, nil
}

// namespaceOf returns the namespace of an addon's agent.
func (a *Addon) namespaceOf(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn, deployment *addonv1alpha1.AddOnDeploymentConfig) (string, error) {
	const ocmDefault = "open-cluster-management-agent-addon"
	switch {
	case deployment == nil || deployment.Spec.AgentInstallNamespace == "":
		return a.InstallNamespace, nil
	case deployment.Spec.AgentInstallNamespace != ocmDefault:
		return deployment.Spec.AgentInstallNamespace, nil
	}
	// The API server sets OCM's own default if the field is empty, and upstream uses
	// that: an agent that is there stays there, beside the ConfigMaps and pull Secrets
	// of its owner. A cluster may write its status, but can only choose between these
	// two namespaces. The stored status counts, because addon-framework puts OCM's
	// default into the copy that it passes.
	var stored addonv1alpha1.ManagedClusterAddOn
	if err := a.Reader.Get(ctx, client.ObjectKeyFromObject(addon), &stored); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the ManagedClusterAddOn of cluster %q: %w", addon.Namespace, err)
	}
	if stored.Status.Namespace == ocmDefault {
		return ocmDefault, nil
	}
	return a.InstallNamespace, nil
}

// configuration is the one that an addon refers to, with its defaults.
func (a *Addon) configuration(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn) (*v1alpha1.ManagedProxyConfiguration, error) {
	if err := a.checkReferences(ctx, addon); err != nil {
		return nil, err
	}
	name := identity.AddonName
	for _, reference := range addon.Status.ConfigReferences {
		gvr := schema.GroupResource{Group: reference.Group, Resource: reference.Resource}
		if gvr == configurationGVR.GroupResource() && reference.DesiredConfig != nil && reference.DesiredConfig.Name != "" {
			name = reference.DesiredConfig.Name
		}
	}
	var stored v1alpha1.ManagedProxyConfiguration
	if err := a.Reader.Get(ctx, client.ObjectKey{Name: name}, &stored); err != nil {
		return nil, fmt.Errorf("reading ManagedProxyConfiguration %q: %w", name, err)
	}
	configuration, err := proxyconfig.Normalize(&stored)
	if err != nil {
		return nil, fmt.Errorf("ManagedProxyConfiguration %q: %w", name, err)
	}
	return configuration, nil
}
