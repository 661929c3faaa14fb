// Package externalversions makes informers of a cluster's properties.
package externalversions

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"sigs.k8s.io/about-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/about-api/pkg/generated/clientset/versioned"
	informers "sigs.k8s.io/about-api/pkg/generated/informers/externalversions/apis/v1alpha1"
	listers "sigs.k8s.io/about-api/pkg/generated/listers/apis/v1alpha1"
)

// SharedInformerFactory makes one informer and starts it if it was asked for.
type SharedInformerFactory interface {
	Start(stop <-chan struct{})
	About() Group
}

// Group is the API group about.k8s.io.
type Group interface{ V1alpha1() Version }

// Version is version v1alpha1 of the group.
type Version interface {
	ClusterProperties() informers.ClusterPropertyInformer
}

type factory struct {
	client versioned.Interface
	resync time.Duration

	mu       sync.Mutex
	informer cache.SharedIndexInformer
}

// NewSharedInformerFactory returns a factory that lists and watches with client.
func NewSharedInformerFactory(client versioned.Interface, resync time.Duration) SharedInformerFactory {
	return &factory{client: client, resync: resync}
}

// Start starts the informer, if there is one, until stop is closed.
func (f *factory) Start(stop <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.informer != nil {
		go f.informer.Run(stop)
	}
}

func (f *factory) About() Group                                         { return f }
func (f *factory) V1alpha1() Version                                    { return f }
func (f *factory) ClusterProperties() informers.ClusterPropertyInformer { return f }

// Informer returns the informer of properties, which it makes the first time.
func (f *factory) Informer() cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.informer == nil {
		source := cache.NewListWatchFromClient(f.client.AboutV1alpha1RESTClient(), "clusterproperties", "", fields.Everything())
		f.informer = cache.NewSharedIndexInformer(source, &v1alpha1.ClusterProperty{}, f.resync, cache.Indexers{})
	}
	return f.informer
}

// Lister lists what the informer knows.
func (f *factory) Lister() listers.ClusterPropertyLister {
	return listers.NewClusterPropertyLister(f.Informer().GetIndexer())
}
