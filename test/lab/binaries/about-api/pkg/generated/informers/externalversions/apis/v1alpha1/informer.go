// Package v1alpha1 has the informer of a cluster's properties.
package v1alpha1

import (
	"k8s.io/client-go/tools/cache"

	listers "sigs.k8s.io/about-api/pkg/generated/listers/apis/v1alpha1"
)

// ClusterPropertyInformer gives an informer and a lister of the same store.
type ClusterPropertyInformer interface {
	Informer() cache.SharedIndexInformer
	Lister() listers.ClusterPropertyLister
}
