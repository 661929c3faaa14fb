package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	addoninformers "open-cluster-management.io/api/client/addon/informers/externalversions"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Clusters watches the hub's ManagedClusters and their ManagedClusterAddOns.
// Methods are safe for concurrent use once Run was called.
type Clusters struct {
	clusters, addons cache.SharedIndexInformer
	// handled tell when the first answers of both have gone through compare.
	handled []cache.ResourceEventHandlerRegistration
	// gone holds the functions of OnGone.
	gone []func(cluster string)

	mu sync.Mutex
	// served holds the objects of the clusters that were served when last seen.
	served map[string]objects
}

// objects tells a cluster and its addon from others with the same names.
type objects struct{ cluster, addon types.UID }

// New does no I/O.
func New(config *rest.Config) (*Clusters, error) {
	clusterClient, err := clusterclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	addonClient, err := addonclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	c := &Clusters{
		clusters: clusterinformers.NewSharedInformerFactory(clusterClient, 0).Cluster().V1().ManagedClusters().Informer(),
		addons: addoninformers.NewSharedInformerFactoryWithOptions(addonClient, 0,
			addoninformers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", identity.AddonName).String()
			})).Addon().V1alpha1().ManagedClusterAddOns().Informer(),
		served: map[string]objects{},
	}
	if err := c.follow(c.clusters, func(o metav1.Object) string { return o.GetName() }); err != nil {
		return nil, err
	}
	return c, c.follow(c.addons, metav1.Object.GetNamespace)
}

// follow compares a cluster with what was served before, whenever one of its
// objects changes.
func (c *Clusters) follow(informer cache.SharedIndexInformer, clusterOf func(metav1.Object) string) error {
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("preparing the watch of clusters: %w", err)
	}
	changed := func(obj any) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, err := meta.Accessor(obj); err == nil {
			c.compare(clusterOf(o))
		}
	}
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
	})
	if err != nil {
		return fmt.Errorf("preparing the watch of clusters: %w", err)
	}
	c.handled = append(c.handled, handled)
	return nil
}

// OnGone has gone called with the name of each cluster that stops being served or
// is replaced by another one. It must be called before Run, and gone must not block.
func (c *Clusters) OnGone(gone func(cluster string)) { c.gone = append(c.gone, gone) }

// compare calls the functions of OnGone if a cluster is not what it was.
func (c *Clusters) compare(cluster string) {
	c.mu.Lock()
	before, was := c.served[cluster]
	var now objects
	managed, addon, err := c.find(cluster)
	if err != nil {
		delete(c.served, cluster)
	} else {
		now = objects{cluster: managed.UID, addon: addon.UID}
		c.served[cluster] = now
	}
	c.mu.Unlock()
	if was && (err != nil || now != before) {
		for _, gone := range c.gone {
			gone(cluster)
		}
	}
}

// slim drops what is not used, so that thousands of clusters cost little.
func slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *clusterv1.ManagedCluster:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp}
		o.Spec = clusterv1.ManagedClusterSpec{HubAcceptsClient: o.Spec.HubAcceptsClient}
		o.Status = clusterv1.ManagedClusterStatus{Version: o.Status.Version, ClusterClaims: o.Status.ClusterClaims}
	case *addonv1alpha1.ManagedClusterAddOn:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion,
			DeletionTimestamp: o.DeletionTimestamp}
		o.Spec = addonv1alpha1.ManagedClusterAddOnSpec{}
		available := meta.FindStatusCondition(o.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
		o.Status = addonv1alpha1.ManagedClusterAddOnStatus{}
		if available != nil {
			o.Status.Conditions = []metav1.Condition{*available}
		}
	}
	return obj, nil
}

// Run watches until ctx is done.
func (c *Clusters) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.addons.RunWithContext(ctx)
	}()
	c.clusters.RunWithContext(ctx)
	<-done
	return nil
}

// Synced returns an error until the hub's answer is complete.
func (c *Clusters) Synced() error {
	switch {
	case !c.handled[0].HasSynced():
		return errors.New("the list of managed clusters has not been read from the hub yet")
	case !c.handled[1].HasSynced():
		return errors.New("the list of ManagedClusterAddOns has not been read from the hub yet")
	}
	return nil
}

// WaitForSync returns when Synced would return nil, or ctx is done.
func (c *Clusters) WaitForSync(ctx context.Context) {
	for _, handled := range c.handled {
		select {
		case <-handled.HasSyncedChecker().Done():
		case <-ctx.Done():
			return
		}
	}
}

func (c *Clusters) cluster(name string) *clusterv1.ManagedCluster {
	obj, _, _ := c.clusters.GetStore().GetByKey(name)
	cluster, _ := obj.(*clusterv1.ManagedCluster)
	return cluster
}

func (c *Clusters) addon(cluster string) *addonv1alpha1.ManagedClusterAddOn {
	obj, _, _ := c.addons.GetStore().GetByKey(cluster + "/" + identity.AddonName)
	addon, _ := obj.(*addonv1alpha1.ManagedClusterAddOn)
	return addon
}

// AwaySince is when the addon of a cluster stopped being available; zero if it is
// available or that is not known.
func (c *Clusters) AwaySince(cluster string) time.Time {
	condition := c.available(cluster)
	if condition == nil || condition.Status == metav1.ConditionTrue {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

// available is the addon's condition of that name, or nil.
func (c *Clusters) available(cluster string) *metav1.Condition {
	if addon := c.addon(cluster); addon != nil {
		return meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
	}
	return nil
}

// Names are those of the served clusters, in no order. The caller may change the
// slice.
func (c *Clusters) Names() []string {
	return slices.DeleteFunc(c.clusters.GetStore().ListKeys(), func(name string) bool { return c.Served(name) != nil })
}

// UID tells a cluster from an earlier one of the same name; empty if there is none.
func (c *Clusters) UID(name string) string {
	if cluster := c.cluster(name); cluster != nil {
		return string(cluster.UID)
	}
	return ""
}

// ClusterSet is the ManagedClusterSet that a cluster has joined; empty if none.
func (c *Clusters) ClusterSet(name string) string {
	if cluster := c.cluster(name); cluster != nil {
		return cluster.Labels[clusterv1beta2.ClusterSetLabel]
	}
	return ""
}

// Place returns where a cluster says that it is; empty if it does not say so.
func (c *Clusters) Place(name string) (provider, region string) {
	if cluster := c.cluster(name); cluster != nil {
		return claimOf(cluster, claimPlatform), claimOf(cluster, claimRegion)
	}
	return "", ""
}

// Describe returns what the objects of a cluster say.
func (c *Clusters) Describe(name string) v1alpha1.Cluster {
	described := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	described.Status.Available = metav1.ConditionUnknown
	if cluster := c.cluster(name); cluster != nil {
		described.ObjectMeta = *cluster.ObjectMeta.DeepCopy()
		described.Status.Version = cluster.Status.Version.Kubernetes
	}
	if condition := c.available(name); condition != nil {
		described.Status.Available = condition.Status
		seen := condition.LastTransitionTime
		if condition.Status == metav1.ConditionTrue {
			seen = metav1.Now()
		} else {
			described.Status.Reason, described.Status.Message = condition.Reason, beginning(condition.Message)
		}
		described.Status.LastSeen = &seen
	}
	return described
}

// maxMessage bounds what is shown of a condition's message, in bytes: a list has one for
// each cluster.
const maxMessage = 512

// beginning returns the part of a message that is shown.
func beginning(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len("…")], "") + "…"
}

// NotServedError says why a cluster or an agent of it is not served.
type NotServedError struct {
	Cluster string
	// Reason begins with a verb: "is being deleted". It is empty if there is no such
	// cluster.
	Reason string
}

func (e *NotServedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("there is no managed cluster %q on this hub: see \"kubectl get managedclusters\"", e.Cluster)
	}
	return fmt.Sprintf("managed cluster %q %s", e.Cluster, e.Reason)
}

// Served returns nil if a cluster may be served, and a *NotServedError otherwise.
func (c *Clusters) Served(cluster string) error {
	_, _, err := c.find(cluster)
	return err
}

// find returns the objects of a cluster that may be served.
func (c *Clusters) find(name string) (*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, error) {
	no := func(reason string) (*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn, error) {
		return nil, nil, &NotServedError{Cluster: name, Reason: reason}
	}
	cluster, addon := c.cluster(name), c.addon(name)
	switch {
	case cluster == nil:
		return no("")
	case cluster.DeletionTimestamp != nil:
		return no("is being deleted")
	case !cluster.Spec.HubAcceptsClient:
		return no("is not accepted by the hub: set spec.hubAcceptsClient of the ManagedCluster")
	case addon == nil:
		return no("does not have the addon: create ManagedClusterAddOn " + identity.AddonName + " in the cluster's namespace, or have a Placement select the cluster")
	case addon.DeletionTimestamp != nil:
		return no("is losing the addon: ManagedClusterAddOn " + identity.AddonName + " is being deleted")
	}
	return cluster, addon, nil
}

// Admit returns nil if the agent with that certificate belongs to a cluster that
// may be served, and a *NotServedError otherwise.
func (c *Clusters) Admit(agent pki.Agent) error {
	cluster, _, err := c.find(agent.Cluster)
	switch {
	case err != nil:
		return err
	case agent.ClusterUID == string(cluster.UID):
		return nil
	case agent.ClusterUID != "":
		return &NotServedError{agent.Cluster, fmt.Sprintf("has UID %s, and the agent's certificate was issued for UID %s: wait until OCM has renewed the certificate, or remove the agent if it belongs to an earlier cluster of that name", cluster.UID, agent.ClusterUID)}
	// Times in certificates have no fractions of seconds, nor have those of objects.
	case agent.Issued.Before(cluster.CreationTimestamp.Time):
		return &NotServedError{agent.Cluster, "was created after the agent's certificate was issued: wait until OCM has renewed the certificate, or remove the agent if it belongs to an earlier cluster of that name"}
	}
	return nil
}
