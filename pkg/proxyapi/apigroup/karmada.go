package apigroup

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// karmadaClusterStorage shows the clusters that a caller may reach in the form of
// cluster.karmada.io. Nothing is stored.
type karmadaClusterStorage struct{ *ClusterAPI }

var (
	_ rest.Scoper               = &karmadaClusterStorage{}
	_ rest.Getter               = &karmadaClusterStorage{}
	_ rest.Lister               = &karmadaClusterStorage{}
	_ rest.SingularNameProvider = &karmadaClusterStorage{}
)

func (s *karmadaClusterStorage) New() runtime.Object     { return &karmadav1alpha1.Cluster{} }
func (s *karmadaClusterStorage) NewList() runtime.Object { return &karmadav1alpha1.ClusterList{} }
func (s *karmadaClusterStorage) Destroy()                {}
func (s *karmadaClusterStorage) NamespaceScoped() bool   { return false }
func (s *karmadaClusterStorage) GetSingularName() string { return "cluster" }

// mayGetKarmadas is the right without which a cluster is not shown in Karmada's API.
var mayGetKarmadas = mayGet.In(karmadav1alpha1.ClusterGroupVersion.Group)

// Get finds a cluster, if the caller may reach it.
func (s *karmadaClusterStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := s.started(); err != nil {
		return nil, err
	}
	if s.Clusters.Served(name) != nil || !s.Authorizer.MayReach(ctx, scope.UserOf(ctx), mayGetKarmadas, name) {
		return nil, apierrors.NewNotFound(karmadav1alpha1.ClusterGroupVersion.WithResource(karmadav1alpha1.Clusters).GroupResource(), name)
	}
	cluster := s.karmadas(s.Clusters.Describe(name))
	return &cluster, nil
}

// List lists the clusters that the caller may reach, by name.
func (s *karmadaClusterStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	items, err := s.reachable(ctx, options, mayGetKarmadas)
	list := &karmadav1alpha1.ClusterList{Items: []karmadav1alpha1.Cluster{}}
	for _, item := range items {
		list.Items = append(list.Items, s.karmadas(item))
	}
	return list, err
}

// karmadas is a cluster in the form of cluster.karmada.io.
func (s *karmadaClusterStorage) karmadas(c v1alpha1.Cluster) karmadav1alpha1.Cluster {
	cluster := karmadav1alpha1.Cluster{ObjectMeta: c.ObjectMeta}
	cluster.Spec.SyncMode = karmadav1alpha1.SyncModePull
	cluster.Spec.Provider, cluster.Spec.Region = s.Clusters.Place(c.Name)
	cluster.Status.KubernetesVersion = c.Status.Version
	ready := metav1.Condition{Type: karmadav1alpha1.ConditionReady, Status: c.Status.Available, Reason: "ManagedClusterAddOn", Message: "condition Available of the cluster's ManagedClusterAddOn"}
	if since := s.Clusters.AwaySince(c.Name); !since.IsZero() {
		ready.LastTransitionTime = metav1.NewTime(since)
	}
	cluster.Status.Conditions = []metav1.Condition{ready}
	return cluster
}

var karmadaColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the ManagedCluster"},
	{Name: "Version", Type: "string", Description: "Version of Kubernetes on the cluster"},
	{Name: "Mode", Type: "string", Description: "Pull: the cluster's agent dials the hub"},
	{Name: "Ready", Type: "string", Description: "Condition Available of the cluster's ManagedClusterAddOn"},
	{Name: "Age", Type: "string", Description: "Age of the ManagedCluster"},
	{Name: "Region", Type: "string", Priority: 1, Description: "ClusterClaim region.open-cluster-management.io"},
	{Name: "Provider", Type: "string", Priority: 1, Description: "ClusterClaim platform.open-cluster-management.io"},
}

// ConvertToTable is what kubectl get shows.
func (s *karmadaClusterStorage) ConvertToTable(_ context.Context, object runtime.Object, options runtime.Object) (*metav1.Table, error) {
	table := newTable(karmadaColumns, options)
	var items []karmadav1alpha1.Cluster
	switch o := object.(type) {
	case *karmadav1alpha1.Cluster:
		items = []karmadav1alpha1.Cluster{*o}
	case *karmadav1alpha1.ClusterList:
		items = o.Items
	default:
		return nil, fmt.Errorf("making a table of %T: it is no cluster", object)
	}
	for i := range items {
		c := &items[i]
		ready := metav1.ConditionUnknown
		if len(c.Status.Conditions) > 0 {
			ready = c.Status.Conditions[0].Status
		}
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: c},
			Cells: []any{c.Name, c.Status.KubernetesVersion, c.Spec.SyncMode, string(ready), ageOf(c.ObjectMeta), c.Spec.Region, c.Spec.Provider}})
	}
	return table, nil
}
