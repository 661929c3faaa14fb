package agentaddon

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"open-cluster-management.io/addon-framework/pkg/addonfactory"
	"open-cluster-management.io/addon-framework/pkg/agent"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/manifests"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var configurationGVR = v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)

// Addon makes the agent addon of what it reads.
type Addon struct {
	// Reader reads configurations and Services of the hub.
	Reader client.Reader
	// Certificates are those of package certificates.
	Certificates certificates.Store
	// DeploymentConfigs reads AddOnDeploymentConfigs.
	DeploymentConfigs utils.AddOnDeploymentConfigGetter
	// InstallNamespace is where agents run unless an AddOnDeploymentConfig says
	// otherwise.
	InstallNamespace string
	// EnableKubeAPIProxy makes the cluster's name a destination in the tunnel.
	EnableKubeAPIProxy bool
	// NetworkPolicy makes one for agents unless an AddOnDeploymentConfig says
	// otherwise.
	NetworkPolicy bool
	// ExposedServices is the hub's ConfigMap with the Services that agents
	// forward requests to. Without a name there are none.
	ExposedServices client.ObjectKey

	exposed exposed
}

// Build gives addon-framework what it asks for.
func (a *Addon) Build() (agent.AgentAddon, error) {
	return addonfactory.NewAgentAddonFactory(identity.AddonName, manifests.FS, manifests.Dir).
		WithConfigGVRs(configurationGVR, utils.AddOnDeploymentConfigGVR).
		WithConfigCheckEnabledOption().
		WithGetValuesFuncs(a.getValues).
		WithAgentInstallNamespace(a.installNamespace).
		WithAgentRegistrationOption(a.registration()).
		BuildHelmAgentAddon()
}

func (a *Addon) installNamespace(addon *addonv1alpha1.ManagedClusterAddOn) (string, error) {
	if err := a.checkReferences(context.Background(), addon); err != nil {
		return "", err
	}
	deployment, err := utils.GetDesiredAddOnDeploymentConfig(addon, a.DeploymentConfigs)
	if err != nil {
		return "", fmt.Errorf("reading the AddOnDeploymentConfig: %w", err)
	}
	// The API server fills in OCM's own default, which nobody has asked for.
	const ocmDefault = "open-cluster-management-agent-addon"
	if deployment == nil || deployment.Spec.AgentInstallNamespace == "" || deployment.Spec.AgentInstallNamespace == ocmDefault {
		return a.InstallNamespace, nil
	}
	return deployment.Spec.AgentInstallNamespace, nil
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
