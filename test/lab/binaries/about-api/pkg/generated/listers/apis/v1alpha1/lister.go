// Package v1alpha1 lists the properties that an informer knows.
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/tools/cache"

	"sigs.k8s.io/about-api/pkg/apis/v1alpha1"
)

// ClusterPropertyLister lists properties of a cluster.
type ClusterPropertyLister interface {
	List(selector labels.Selector) ([]*v1alpha1.ClusterProperty, error)
	Get(name string) (*v1alpha1.ClusterProperty, error)
}

// NewClusterPropertyLister returns a lister of what is in an informer's store.
func NewClusterPropertyLister(indexer cache.Indexer) ClusterPropertyLister {
	resource := v1alpha1.GroupVersion.WithResource("clusterproperties").GroupResource()
	return listers.New[*v1alpha1.ClusterProperty](indexer, resource)
}
