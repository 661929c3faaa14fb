package agentaddon

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"open-cluster-management.io/addon-framework/pkg/addonfactory"
	"open-cluster-management.io/addon-framework/pkg/agent"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/manifests"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var configurationGVR = v1alpha1.GroupVersion.WithResource("managedproxyconfigurations")

// Addon makes the agent addon of what it reads.
type Addon struct {
	// Reader reads configurations, Services and addons of the hub.
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
	// NetworkPolicy says whether agents get a NetworkPolicy, unless an
	// AddOnDeploymentConfig says otherwise.
	NetworkPolicy bool
	// ExposedServices is the hub's ConfigMap with the Services that agents
	// forward requests to. Without a name there are none.
	ExposedServices client.ObjectKey
	// Ignored is called with the customized variables of an addon that this release
	// ignores, each time its manifests are made. It may be nil.
	Ignored func(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn, variables []string)

	// CheckArgs returns why an agent would not start with its arguments. Nil checks nothing.
	CheckArgs func(args []string) error
	// Hub reads the hub's own ClusterRoles.
	Hub client.Reader
	// Metrics may be nil.
	Metrics *Metrics

	exposed  exposed
	hubRoles hubRoles
	// rendering has the values of each addon that is being rendered, by its pointer.
	rendering sync.Map
}

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
