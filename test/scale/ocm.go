package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	certificateslister "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	addoninformers "open-cluster-management.io/api/client/addon/informers/externalversions"
	addonlister "open-cluster-management.io/api/client/addon/listers/addon/v1alpha1"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	workclient "open-cluster-management.io/api/client/work/clientset/versioned"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions"
	worklister "open-cluster-management.io/api/client/work/listers/work/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// standIn plays OCM's part for all clusters: on the hub that of its controllers, and of each
// cluster that of its klusterlet.
type standIn struct {
	dir   string
	start func(agentSpec) error // runs an agent when a cluster has what it needs

	config   *rest.Config
	kube     kubernetes.Interface
	clusters clusterclient.Interface
	addons   addonclient.Interface
	works    workclient.Interface

	addonLister   addonlister.ManagedClusterAddOnLister
	workLister    worklister.ManifestWorkLister
	requestLister certificateslister.CertificateSigningRequestLister
	queue         workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex
	state map[string]*clusterState
}

// clusterState is what the klusterlet of a cluster knows. Only the one worker that has the
// cluster's turn changes it, but for leased.
type clusterState struct {
	asked      addonv1alpha1.RegistrationConfig // what was asked for last
	key        []byte                           // PEM, of the request that is open
	request    string                           // its name
	registered bool                             // has a certificate
	generation int64                            // of the ManifestWork whose files are written
	args       []string
	started    bool
	leased     bool
}

const standInWorkers = 16

func newStandIn(dir string, config *rest.Config, start func(agentSpec) error) (*standIn, error) {
	s := &standIn{dir: dir, start: start, config: config, state: map[string]*clusterState{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	var err error
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if s.clusters, err = clusterclient.NewForConfig(config); err != nil {
		return nil, err
	}
	if s.addons, err = addonclient.NewForConfig(config); err != nil {
		return nil, err
	}
	s.works, err = workclient.NewForConfig(config)
	return s, err
}

// run works until ctx is done.
func (s *standIn) run(ctx context.Context) error {
	addons := addoninformers.NewSharedInformerFactory(s.addons, 0)
	works := workinformers.NewSharedInformerFactory(s.works, 0)
	kube := informers.NewSharedInformerFactory(s.kube, 0)
	addonInformer, workInformer, requestInformer := addons.Addon().V1alpha1().ManagedClusterAddOns(), works.Work().V1().ManifestWorks(), kube.Certificates().V1().CertificateSigningRequests()
	s.addonLister, s.workLister, s.requestLister = addonInformer.Lister(), workInformer.Lister(), requestInformer.Lister()
	inNamespace := func(object metav1.Object) string { return object.GetNamespace() }
	byLabel := func(object metav1.Object) string { return object.GetLabels()[clusterv1.ClusterNameLabelKey] }
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		cluster  func(metav1.Object) string
	}{{addonInformer.Informer(), inNamespace}, {workInformer.Informer(), inNamespace}, {requestInformer.Informer(), byLabel}} {
		if err := watched.informer.SetTransform(withoutManagedFields); err != nil {
			return err
		}
		add := func(object any) {
			if named, err := meta.Accessor(object); err == nil && watched.cluster(named) != "" {
				s.queue.Add(watched.cluster(named))
			}
		}
		if _, err := watched.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }}); err != nil {
			return err
		}
	}
	addons.Start(ctx.Done())
	works.Start(ctx.Done())
	kube.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), addonInformer.Informer().HasSynced, workInformer.Informer().HasSynced, requestInformer.Informer().HasSynced) {
		return ctx.Err()
	}
	context.AfterFunc(ctx, s.queue.ShutDown)
	for range standInWorkers {
		go s.work(ctx)
	}
	return nil
}

// withoutManagedFields is half of what an object takes.
func withoutManagedFields(object any) (any, error) {
	if named, err := meta.Accessor(object); err == nil {
		named.SetManagedFields(nil)
	}
	return object, nil
}

func (s *standIn) work(ctx context.Context) {
	for {
		cluster, ended := s.queue.Get()
		if ended {
			return
		}
		if err := s.sync(ctx, cluster); err != nil {
			s.queue.AddRateLimited(cluster)
		} else {
			s.queue.Forget(cluster)
		}
		s.queue.Done(cluster)
	}
}

func (s *standIn) of(cluster string) *clusterState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state[cluster] == nil {
		s.state[cluster] = &clusterState{}
	}
	return s.state[cluster]
}

// setLeased says that the addon's Lease is renewed on these clusters.
func (s *standIn) setLeased(clusters []string) {
	for _, cluster := range clusters {
		state := s.of(cluster)
		s.mu.Lock()
		state.leased = true
		s.mu.Unlock()
		s.queue.Add(cluster)
	}
}

// sync does what is next for a cluster.
func (s *standIn) sync(ctx context.Context, cluster string) error {
	addon, err := s.addonLister.ManagedClusterAddOns(cluster).Get(identity.AddonName)
	if err != nil {
		return nil // not created yet
	}
	state := s.of(cluster)
	if err := s.register(ctx, cluster, state, addon); err != nil {
		return err
	}
	if err := s.apply(ctx, cluster, state); err != nil {
		return err
	}
	if state.registered && state.args != nil && !state.started {
		if err := s.start(agentSpec{Cluster: cluster, Dir: s.folder(cluster), Args: state.args}); err != nil {
			return err
		}
		state.started = true
	}
	s.mu.Lock()
	leased := state.leased
	s.mu.Unlock()
	if !leased || meta.IsStatusConditionTrue(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable) {
		return nil
	}
	return s.changeAddon(ctx, cluster, func(status *addonv1alpha1.ManagedClusterAddOnStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: addonv1alpha1.ManagedClusterAddOnConditionAvailable, Status: metav1.ConditionTrue,
			Reason: "ManagedClusterAddOnLeaseUpdated", Message: "cluster-proxy add-on is available."})
	})
}

func (s *standIn) changeAddon(ctx context.Context, cluster string, change func(*addonv1alpha1.ManagedClusterAddOnStatus)) error {
	client := s.addons.AddonV1alpha1().ManagedClusterAddOns(cluster)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		addon, err := client.Get(ctx, identity.AddonName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&addon.Status)
		_, err = client.UpdateStatus(ctx, addon, metav1.UpdateOptions{})
		return err
	})
}

// each does something for each of many clusters, some at a time.
func each(ctx context.Context, clusters []string, do func(ctx context.Context, cluster string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(standInWorkers)
	for _, cluster := range clusters {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := do(ctx, cluster); err != nil {
				return fmt.Errorf("%s: %w", cluster, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// create makes a cluster that has joined, and its addon: what OCM's registration, placement and
// addon controllers make.
func (s *standIn) create(ctx context.Context, cluster string, owner metav1.OwnerReference) error {
	if _, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	made, err := s.clusters.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: cluster, Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "default"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, condition := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
		meta.SetStatusCondition(&made.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Simulated"})
	}
	made.Status.Version.Kubernetes = "v1.36.0"
	if _, err := s.clusters.ClusterV1().ManagedClusters().UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err := s.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Create(ctx, &addonv1alpha1.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: cluster, OwnerReferences: []metav1.OwnerReference{owner}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return s.configure(ctx, cluster, "made")
}

// configure says which configuration an addon has, as OCM's addon controller does again
// whenever that changes.
func (s *standIn) configure(ctx context.Context, cluster, hash string) error {
	referent := addonv1alpha1.ConfigReferent{Name: identity.AddonName}
	return s.changeAddon(ctx, cluster, func(status *addonv1alpha1.ManagedClusterAddOnStatus) {
		status.ConfigReferences = []addonv1alpha1.ConfigReference{{
			ConfigGroupResource: addonv1alpha1.ConfigGroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "managedproxyconfigurations"},
			ConfigReferent:      referent, DesiredConfig: &addonv1alpha1.ConfigSpecHash{ConfigReferent: referent, SpecHash: hash},
		}}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: addonv1alpha1.ManagedClusterAddOnConditionConfigured, Status: metav1.ConditionTrue, Reason: "ConfigurationsConfigured"})
	})
}

// rendered counts the clusters whose work satisfies a condition.
func (s *standIn) rendered(is func(*workv1.ManifestWork) bool) int {
	works, err := s.workLister.List(everything)
	if err != nil {
		return 0
	}
	clusters := map[string]bool{}
	for _, work := range works {
		if is(work) {
			clusters[work.Namespace] = true
		}
	}
	return len(clusters)
}

// available counts the clusters of which the addon is.
func (s *standIn) available() (n int) {
	addons, err := s.addonLister.List(everything)
	if err != nil {
		return 0
	}
	for _, addon := range addons {
		if meta.IsStatusConditionTrue(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable) {
			n++
		}
	}
	return n
}

// names are those of the clusters, in order.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("cluster-%04d", i)
	}
	return all
}

// mentions reports whether a manifest of a work has some text.
func mentions(work *workv1.ManifestWork, text string) bool {
	return slices.ContainsFunc(work.Spec.Workload.Manifests, func(m workv1.Manifest) bool { return strings.Contains(string(m.Raw), text) })
}

// leaseEvery is how often the clusters are asked whether they have renewed their Leases.
const leaseEvery = time.Second
