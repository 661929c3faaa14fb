package addonmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	kubeinformers "k8s.io/client-go/informers"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"open-cluster-management.io/addon-framework/pkg/addonmanager/controllers/addonconfig"
	"open-cluster-management.io/addon-framework/pkg/addonmanager/controllers/agentdeploy"
	"open-cluster-management.io/addon-framework/pkg/addonmanager/controllers/certificate"
	"open-cluster-management.io/addon-framework/pkg/addonmanager/controllers/cmaconfig"
	"open-cluster-management.io/addon-framework/pkg/addonmanager/controllers/cmamanagedby"
	"open-cluster-management.io/addon-framework/pkg/addonmanager/controllers/registration"
	"open-cluster-management.io/addon-framework/pkg/agent"
	"open-cluster-management.io/addon-framework/pkg/index"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	addoninformers "open-cluster-management.io/api/client/addon/informers/externalversions"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	workclient "open-cluster-management.io/api/client/work/clientset/versioned"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions"
)

// clusterWorkers is how many clusters a controller of addon-framework looks at at once.
// A look at a cluster is a few requests to the hub, one after the other, so that with
// one worker thousands of clusters wait for the hub's latency.
const clusterWorkers = 10

// resyncEvery is how often each cluster is looked at although nothing has changed, as
// in addon-framework.
const resyncEvery = 10 * time.Minute

// hubClients are those of addon-framework's controllers.
type hubClients struct {
	kube     kubernetes.Interface
	dynamic  dynamic.Interface
	addons   addonclient.Interface
	clusters clusterclient.Interface
	works    workclient.Interface
}

func newHubClients(config *rest.Config) (c hubClients, err error) {
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	if c.addons, err = addonclient.NewForConfig(config); err != nil {
		return c, err
	}
	if c.clusters, err = clusterclient.NewForConfig(config); err != nil {
		return c, err
	}
	c.works, err = workclient.NewForConfig(config)
	return c, err
}

// worker is a controller of addon-framework's.
type worker interface {
	Run(ctx context.Context, workers int)
}

// framework is addon-framework's controllers for one addon. addon-framework's own
// manager runs each of them with one worker.
type framework struct {
	informers
	// ofClusters look at one cluster after the other, ofAddon at the addon as a whole.
	ofClusters, ofAddon []worker
	enqueue             []func(key string)
}

// informers know what the controllers read, as far as it belongs to the addon.
type informers struct {
	kube     kubeinformers.SharedInformerFactory
	works    workinformers.SharedInformerFactory
	addons   addoninformers.SharedInformerFactory
	clusters clusterinformers.SharedInformerFactory
	configs  dynamicinformer.DynamicSharedInformerFactory
}

func newInformers(hub hubClients, addon string) (informers, error) {
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = addonv1alpha1.AddonLabelKey + "=" + addon }
	// The ClusterManagementAddOn and the addons of clusters have the same name.
	named := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", addon).String()
	}
	i := informers{
		kube:     kubeinformers.NewSharedInformerFactoryWithOptions(hub.kube, resyncEvery, kubeinformers.WithTweakListOptions(labelled)),
		works:    workinformers.NewSharedInformerFactoryWithOptions(hub.works, resyncEvery, workinformers.WithTweakListOptions(labelled)),
		addons:   addoninformers.NewSharedInformerFactoryWithOptions(hub.addons, resyncEvery, addoninformers.WithTweakListOptions(named)),
		clusters: clusterinformers.NewSharedInformerFactory(hub.clusters, resyncEvery),
		configs:  dynamicinformer.NewDynamicSharedInformerFactory(hub.dynamic, resyncEvery),
	}
	return i, errors.Join(
		i.works.Work().V1().ManifestWorks().Informer().AddIndexers(cache.Indexers{
			index.ManifestWorkByAddon:           index.IndexManifestWorkByAddon,
			index.ManifestWorkByHostedAddon:     index.IndexManifestWorkByHostedAddon,
			index.ManifestWorkHookByHostedAddon: index.IndexManifestWorkHookByHostedAddon,
		}),
		i.addons.Addon().V1alpha1().ManagedClusterAddOns().Informer().AddIndexers(cache.Indexers{
			index.ManagedClusterAddonByNamespace: index.IndexManagedClusterAddonByNamespace,
			index.AddonByConfig:                  index.IndexAddonByConfig,
		}),
		i.addons.Addon().V1alpha1().ClusterManagementAddOns().Informer().AddIndexers(cache.Indexers{
			index.ClusterManagementAddonByConfig: index.IndexClusterManagementAddonByConfig,
		}),
	)
}

// newFramework prepares the controllers and does no I/O.
func newFramework(hub hubClients, addon agent.AgentAddon) (*framework, error) {
	options := addon.GetAgentAddonOptions()
	agents := map[string]agent.AgentAddon{options.AddonName: addon}
	configs := map[schema.GroupVersionResource]bool{}
	for _, gvr := range options.SupportedConfigGVRs {
		configs[gvr] = true
	}
	i, err := newInformers(hub, options.AddonName)
	if err != nil {
		return nil, fmt.Errorf("indexing what addon-framework reads: %w", err)
	}
	works, clusters := i.works.Work().V1().ManifestWorks(), i.clusters.Cluster().V1().ManagedClusters()
	addons, whole := i.addons.Addon().V1alpha1().ManagedClusterAddOns(), i.addons.Addon().V1alpha1().ClusterManagementAddOns()
	requests := copiedRequests{i.kube.Certificates().V1().CertificateSigningRequests()}
	every, ours := utils.AllowAllAddOns, utils.FilterByAddonName(agents)
	deploy := agentdeploy.NewAddonDeployController(hub.works, hub.addons, clusters, addons, works, agents, every)
	register := registration.NewAddonRegistrationController(hub.addons, clusters, addons, agents, every)
	return &framework{
		informers: i,
		ofClusters: []worker{
			deploy,
			register,
			addonconfig.NewAddonConfigController(hub.addons, addons, whole, i.configs, configs, ours),
			certificate.NewCSRApprovingController(hub.kube, clusters, requests, nil, addons, agents, every),
			certificate.NewCSRSignController(hub.kube, clusters, requests, addons, agents, every),
		},
		ofAddon: []worker{
			cmamanagedby.NewCMAManagedByController(hub.addons, whole, agents, ours),
			cmaconfig.NewCMAConfigController(hub.addons, whole, i.configs, configs, ours),
		},
		enqueue: []func(string){deploy.SyncContext().Queue().Add, register.SyncContext().Queue().Add},
	}, nil
}

// trigger asks for the manifests and the registration of a cluster's addon to be made
// again.
func (f *framework) trigger(cluster, addon string) {
	for _, add := range f.enqueue {
		add(cluster + "/" + addon)
	}
}

// run works until ctx is done.
func (f *framework) run(ctx context.Context) {
	for _, c := range f.ofClusters {
		go c.Run(ctx, clusterWorkers)
	}
	for _, c := range f.ofAddon {
		go c.Run(ctx, 1)
	}
	for _, factory := range []interface{ Start(stop <-chan struct{}) }{f.kube, f.works, f.addons, f.clusters, f.configs} {
		factory.Start(ctx.Done())
	}
	<-ctx.Done()
}

// copiedRequests gives addon-framework copies of the informer's objects: it notes that it has
// approved a request before it tells the hub. If the hub refuses that, the next try would find the
// request approved, and the agent never got its certificate; and the signer would see it meanwhile.
type copiedRequests struct {
	certificatesinformers.CertificateSigningRequestInformer
}

// Lister is part of CertificateSigningRequestInformer.
func (r copiedRequests) Lister() certificateslisters.CertificateSigningRequestLister {
	return copyingLister{r.CertificateSigningRequestInformer.Lister()}
}

// copyingLister copies what Get returns; addon-framework does not call List.
type copyingLister struct {
	certificateslisters.CertificateSigningRequestLister
}

// Get is part of CertificateSigningRequestLister.
func (l copyingLister) Get(name string) (*certificatesv1.CertificateSigningRequest, error) {
	request, err := l.CertificateSigningRequestLister.Get(name)
	return request.DeepCopy(), err // of nil too
}
