package addonmanager

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/agentaddon"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/apiservice"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Manager is one addon manager process.
type Manager struct{ options Options }

// New checks the options and does no I/O.
func New(o *Options) (*Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Manager{options: *o}, nil
}

// Run works until ctx is done or leadership is lost.
func (m *Manager) Run(ctx context.Context) error {
	ctrl.SetLogger(klog.FromContext(ctx))
	config, err := flags.RESTConfig("kubeconfig", m.options.Kubeconfig)
	if err != nil {
		return err
	}
	// Rendering for thousands of clusters is bound by the hub, not by us.
	config.QPS, config.Burst = 200, 400
	if err := waitForResources(ctx, config, v1alpha1.GroupVersion.WithResource("managedproxyconfigurations"), schema.GroupVersion(addonv1alpha1.GroupVersion).WithResource("managedclusteraddons")); err != nil {
		return err
	}
	mgr, err := m.newManager(config)
	if err != nil {
		return err
	}
	if err := m.addControllers(mgr, config); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (m *Manager) newManager(config *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, addonv1alpha1.Install,
		clusterv1.Install, clusterv1beta2.Install, inventoryv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: m.options.MetricsBindAddress},
		HealthProbeBindAddress:        m.options.HealthProbeBindAddress,
		LeaderElection:                m.options.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       m.options.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{m.options.Namespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				&addonv1alpha1.ManagedClusterAddOn{}: {
					Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
					Field:      fields.OneTermEqualSelector("metadata.name", identity.AddonName),
					Transform:  slim,
				},
				&clusterv1.ManagedCluster{}: {Transform: slim},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the manager: %w", err)
	}
	for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, err
		}
	}
	return mgr, nil
}

func (m *Manager) addControllers(mgr ctrl.Manager, config *rest.Config) error {
	o := m.options
	pods, err := proxyconfig.ParsePods(o.ProxyServerPods)
	if err != nil {
		return err
	}
	reconciler := &proxyconfig.Reconciler{Client: mgr.GetClient(), Options: proxyconfig.Options{
		SignerNamespace: o.SignerSecretNamespace, SignerName: o.SignerSecretName, Namespace: o.Namespace,
		AgentInstallNamespace: o.AgentInstallNamespace, ImagePullPolicy: o.ImagePullPolicy, Pods: pods, Propagation: o.SecretPropagation, CheckArgs: o.CheckArgs,
		FleetIndex: len(o.FleetIndexResources) > 0,
	}}
	reconciler.Checker = &certificates.AgentChecker{Clusters: clustersWithAddon(mgr.GetClient()), ProxyServer: o.ProxyServer}
	reconciler.Clusters = addonsOf(mgr.GetClient())
	reconciler.Live = mgr.GetAPIReader()
	peers, serverName := o.peers()
	reconciler.Arrivals = &certificates.AgentChecker{Clusters: clustersWithAddon(mgr.GetClient()), ProxyServer: peers, ServerName: serverName}
	reconciler.Metrics = proxyconfig.NewMetrics(metrics.Registry)
	reconciler.Events = mgr.GetEventRecorder(identity.AddonManager)
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the controller of configurations: %w", err)
	}
	if o.LeaderElect {
		if err := addLeaseOwner(mgr, o.Namespace); err != nil {
			return err
		}
	}
	if err := addAvailability(mgr, metrics.Registry); err != nil {
		return fmt.Errorf("adding the controller of the metric of addons: %w", err)
	}
	if err := addLeftovers(mgr, o.Namespace); err != nil {
		return err
	}
	if err := addLateControllers(mgr, o); err != nil {
		return err
	}
	// The cache does not hold these objects: it would have to list and watch them.
	hub, err := client.New(config, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("preparing a client of the hub: %w", err)
	}
	if err := (&apiservice.Reconciler{Client: mgr.GetClient(), Hub: hub, Namespace: o.Namespace}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the controller of the APIService: %w", err)
	}
	return m.addAgent(mgr, config, hub)
}

// addAgent hands the agent to addon-framework, which does the rest.
func (m *Manager) addAgent(mgr ctrl.Manager, config *rest.Config, hub client.Reader) error {
	o := m.options
	access, err := agentaddon.ParseAccess(o.Access)
	if err != nil {
		return err
	}
	addons, err := addonclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing a client of addons: %w", err)
	}
	addon := &agentaddon.Addon{
		Reader:             mgr.GetClient(),
		Certificates:       certificates.Store{Client: mgr.GetClient(), Namespace: o.SignerSecretNamespace, BundleNamespace: o.Namespace},
		DeploymentConfigs:  utils.NewAddOnDeploymentConfigGetter(addons),
		InstallNamespace:   o.AgentInstallNamespace,
		EnableKubeAPIProxy: o.EnableKubeAPIProxy,
		ExposedServices:    client.ObjectKey{Namespace: o.Namespace, Name: o.ExposedServicesConfigMap},
		NetworkPolicy:      o.AgentNetworkPolicy,
		Ignored:            (&notices{addons: addons, events: mgr.GetEventRecorder(identity.AddonManager)}).tell,
		CheckArgs:          o.CheckArgs,
		Hub:                hub,
		Metrics:            agentaddon.NewMetrics(metrics.Registry),
		FleetIndex:         o.FleetIndexResources,
		Access:             access,
	}
	built, err := addon.Build()
	if err != nil {
		return fmt.Errorf("preparing the agents' manifests: %w", err)
	}
	clients, err := newHubClients(config)
	if err != nil {
		return fmt.Errorf("preparing addon-framework's clients of the hub: %w", err)
	}
	framework, err := newFramework(clients, built)
	if err != nil {
		return fmt.Errorf("preparing addon-framework: %w", err)
	}
	watching := make(chan struct{})
	if err := addRerender(mgr, o.ExposedServicesConfigMap, framework.trigger, watching); err != nil {
		return fmt.Errorf("adding the controller that renders again: %w", err)
	}
	// A runnable like this one starts when the manager has become the leader.
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-watching:
			framework.run(ctx)
		case <-ctx.Done():
		}
		return nil
	}))
}
