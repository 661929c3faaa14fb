package clusters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Policies watches the hub's AccessPolicies, and compiles each when it changes. Methods are safe for
// concurrent use once Run was called.
type Policies struct {
	views   *Views
	watched *optional
	handled cache.ResourceEventHandlerRegistration
	// set has what compiled has, and containing finds the ManagedClusterSets of a cluster. Both are
	// replaced, never changed.
	set        atomic.Pointer[accesspolicy.Set]
	containing atomic.Pointer[func(cluster string) []string]

	mu       sync.Mutex
	compiled map[string]*policy // by name
}

// policy is an AccessPolicy that was compiled, and which clusters it selects now.
type policy struct {
	*accesspolicy.Policy
	uid        types.UID
	generation int64
	terms      *v1alpha1.FleetViewClusters
	selection  atomic.Pointer[Selection]
}

// Selects reports whether the policy selects a cluster. While it is not known which clusters it
// means, it selects all.
func (p *policy) Selects(cluster string, clusterLabels map[string]string) bool {
	selection := p.selection.Load()
	return selection == nil || selection.Selects(cluster, clusterLabels)
}

// NewPolicies does no I/O. Policies select from the clusters and the sets of views.
func NewPolicies(config *rest.Config, views *Views) (*Policies, error) {
	listed, err := listWatch(config, "accesspolicies")
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	p := &Policies{views: views, compiled: map[string]*policy{}}
	p.swapLocked()
	p.findSets(nil)
	if p.watched, err = watchOptional("AccessPolicies", cache.NewSharedIndexInformer(listed, &v1alpha1.AccessPolicy{}, 0, nil)); err != nil {
		return nil, err
	}
	if p.handled, err = p.watched.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.keep, UpdateFunc: func(_, object any) { p.keep(object) }, DeleteFunc: p.drop,
	}); err != nil {
		return nil, fmt.Errorf("preparing the watch of AccessPolicies: %w", err)
	}
	if _, err = views.sets.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.findSets, UpdateFunc: func(_, set any) { p.findSets(set) }, DeleteFunc: p.findSets,
	}); err != nil {
		return nil, fmt.Errorf("preparing the watch of ManagedClusterSets: %w", err)
	}
	return p, nil
}

// keep compiles a policy whose spec is another one.
func (p *Policies) keep(object any) {
	made, ok := object.(*v1alpha1.AccessPolicy)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.compiled[made.Name]; was != nil && was.uid == made.UID && was.generation == made.Generation {
		return
	}
	compiled := &policy{uid: made.UID, generation: made.Generation, terms: &made.Spec.Clusters}
	compiled.Policy, _ = accesspolicy.Compile(made, compiled) // the policy's status has the error
	p.selectLocked(compiled)
	p.compiled[made.Name] = compiled
	p.swapLocked()
}

func (p *Policies) drop(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.compiled, name.Name)
	p.swapLocked()
}

// findSets reads the ManagedClusterSets again, one of which has changed.
func (p *Policies) findSets(any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	containing := p.views.Containing(slices.Sorted(slices.Values(p.views.sets.informer.GetStore().ListKeys())))
	p.containing.Store(&containing)
	for _, compiled := range p.compiled {
		p.selectLocked(compiled)
	}
}

// selectLocked finds out which clusters a policy selects.
func (p *Policies) selectLocked(compiled *policy) {
	selection, err := NewSelection(compiled.terms, p.views.set)
	if err != nil || len(selection.MissingSets()) > 0 {
		selection = nil
	}
	compiled.selection.Store(selection)
}

func (p *Policies) swapLocked() {
	var all []*accesspolicy.Policy
	for compiled := range maps.Values(p.compiled) {
		all = append(all, compiled.Policy)
	}
	p.set.Store(accesspolicy.NewSet(all))
}

// Run watches until ctx is done.
func (p *Policies) Run(ctx context.Context) error {
	p.watched.informer.RunWithContext(ctx)
	return nil
}

// Synced returns an error until it is known which policies there are.
func (p *Policies) Synced() error {
	if !p.watched.lacking.Load() && !p.handled.HasSynced() {
		return fmt.Errorf("the list of %s has not been read from the hub yet", p.watched.what)
	}
	return nil
}

// Set returns all policies. The error means that they, or the ManagedClusterSets that they read, are
// not known yet: that is no answer without policies.
func (p *Policies) Set() (*accesspolicy.Set, error) {
	if err := p.Synced(); err != nil {
		return nil, err
	}
	set := p.set.Load()
	if set.IsEmpty() {
		return set, nil
	}
	return set, p.views.sets.synced()
}

// Cluster returns what policies may read of a cluster.
func (p *Policies) Cluster(name string) accesspolicy.Cluster {
	known := accesspolicy.Cluster{Name: name, Sets: func() []string { return (*p.containing.Load())(name) }}
	if cluster := p.views.clusters.cluster(name); cluster != nil {
		known.Labels, known.Claims = cluster.Labels, make(map[string]string, len(cluster.Status.ClusterClaims))
		for _, claim := range cluster.Status.ClusterClaims {
			known.Claims[claim.Name] = claim.Value
		}
	}
	return known
}
