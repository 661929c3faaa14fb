package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The group versions of this package.
var (
	ClusterGroupVersion = schema.GroupVersion{Group: "cluster.karmada.io", Version: "v1alpha1"}
	SearchGroupVersion  = schema.GroupVersion{Group: "search.karmada.io", Version: "v1alpha1"}
)

// Resources of these groups.
const (
	// Clusters have the subresources of the addon's own clusters.
	Clusters = "clusters"
	// AllClusters is the name of a cluster that stands for all of them.
	AllClusters = "*"
	// Registries are ResourceRegistries.
	Registries = "resourceregistries"
	// Proxying has the subresource proxy: the view that the registries make.
	Proxying = "proxying"
	// ProxyingName is the one name of it.
	ProxyingName = "karmada"
	// CachedFrom is an annotation of each object of a view: the cluster it is from.
	CachedFrom = "resource.karmada.io/cached-from-cluster"
)

// AddToScheme registers the kinds of this package. They have one version, which is the
// internal one too.
func AddToScheme(scheme *runtime.Scheme) error {
	kinds := map[schema.GroupVersion][]runtime.Object{
		ClusterGroupVersion: {&Cluster{}, &ClusterList{}},
		SearchGroupVersion:  {&ResourceRegistry{}, &ResourceRegistryList{}},
	}
	for gv, of := range kinds {
		scheme.AddKnownTypes(gv, of...)
		scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, of...)
		metav1.AddToGroupVersion(scheme, gv)
		if err := scheme.SetVersionPriority(gv); err != nil {
			return err
		}
	}
	return nil
}
