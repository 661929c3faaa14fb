package clusters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// registriesResource are KarmadaResourceRegistries.
const registriesResource = "karmadaresourceregistries"

// Registries watches the hub's ResourceRegistries. Methods are safe for concurrent use once
// Run was called.
type Registries struct {
	clusters *Clusters
	watched  *optional
	handled  cache.ResourceEventHandlerRegistration

	mu         sync.Mutex
	selections map[string]*RegistrySelection // by registry
}

// NewRegistries does no I/O.
func NewRegistries(config *rest.Config, clusters *Clusters) (*Registries, error) {
	listed, err := listWatch(config, registriesResource)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	r := &Registries{clusters: clusters, selections: map[string]*RegistrySelection{}}
	if r.watched, err = watchOptional("KarmadaResourceRegistries", cache.NewSharedIndexInformer(listed, &v1alpha1.KarmadaResourceRegistry{}, 0, nil)); err != nil {
		return nil, err
	}
	r.handled, err = r.watched.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: r.keep, UpdateFunc: func(_, object any) { r.keep(object) }, DeleteFunc: r.drop,
	})
	return r, err
}

func (r *Registries) keep(object any) {
	registry, ok := object.(*v1alpha1.KarmadaResourceRegistry)
	if !ok {
		return
	}
	selection, _ := NewRegistrySelection(&registry.Spec) // the registry's status has the error
	r.mu.Lock()
	defer r.mu.Unlock()
	r.selections[registry.Name] = selection
}

func (r *Registries) drop(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.selections, name.Name)
}

// Run watches until ctx is done.
func (r *Registries) Run(ctx context.Context) error {
	r.watched.informer.RunWithContext(ctx)
	return nil
}

// RegistryRule is a resource that the registry selects, and of which clusters.
type RegistryRule struct {
	RegistryResource
	// Selects reports whether the registry, as it is when it is asked, selects a cluster.
	Selects func(cluster string) bool
}

// Rules are those of all registries. The error means that they are not known yet.
func (r *Registries) Rules() ([]RegistryRule, error) {
	if !r.watched.lacking.Load() && !r.handled.HasSynced() {
		return nil, fmt.Errorf("the list of %s has not been read from the hub yet", r.watched.what)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var rules []RegistryRule
	for _, name := range slices.Sorted(maps.Keys(r.selections)) {
		for _, resource := range r.selections[name].resources {
			rules = append(rules, RegistryRule{resource, func(cluster string) bool { return r.selects(name, cluster) }})
		}
	}
	return rules, nil
}

func (r *Registries) selects(registry, name string) bool {
	r.mu.Lock()
	selection := r.selections[registry]
	r.mu.Unlock()
	cluster := r.clusters.cluster(name)
	return selection != nil && cluster != nil && selection.Selects(cluster)
}
