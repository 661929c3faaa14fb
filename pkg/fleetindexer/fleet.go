package fleetindexer

import (
	"context"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
)

const (
	// lookInterval is how often the clusters of the hub are compared with those that are followed.
	lookInterval = time.Second
	// beatInterval is how often the store learns when clusters were heard.
	beatInterval = 10 * time.Second
	// sweepInterval is how often clusters of the store are looked for that the hub does not have.
	sweepInterval = 30 * time.Second
	// measureInterval is how often the size of the store is looked at, and definitions of no feed are deleted.
	measureInterval = time.Minute
)

// hubClusters says which clusters there are.
type hubClusters interface {
	// Synced returns an error until the others are complete.
	Synced() error
	// Names returns the clusters that may be served, and UID that of a ManagedCluster.
	Names() []string
	UID(cluster string) string
}

// fleet has a follower for each cluster of this replica.
type fleet struct {
	*shared
	hub hubClusters
	// owns reports whether a cluster is this replica's.
	owns      func(cluster string) bool
	following map[string]*followed
	running   sync.WaitGroup
}

type followed struct {
	*follower
	cancel context.CancelFunc
}

// run follows clusters until ctx is done.
func (f *fleet) run(ctx context.Context) error {
	look, beat, sweep, measure := time.NewTicker(lookInterval), time.NewTicker(beatInterval), time.NewTicker(sweepInterval), time.NewTicker(measureInterval)
	for _, ticker := range []*time.Ticker{look, beat, sweep, measure} {
		defer ticker.Stop()
	}
	f.measure(ctx)
	for {
		select {
		case <-ctx.Done():
			f.running.Wait()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatInterval)
			defer cancel()
			f.writeBeats(last)
			return nil
		case <-look.C:
			f.look(ctx)
		case <-beat.C:
			f.writeBeats(ctx)
		case <-sweep.C:
			f.sweep(ctx)
		case <-measure.C:
			f.measure(ctx)
		}
	}
}

// look begins and ends following, and removes the rows of clusters that are served no more.
func (f *fleet) look(ctx context.Context) {
	if f.hub.Synced() != nil {
		return
	}
	wanted := map[string]string{}
	served := map[string]string{}
	for _, name := range f.hub.Names() {
		served[name] = f.hub.UID(name)
		if f.owns(name) {
			wanted[name] = served[name]
		}
	}
	for name, one := range f.following {
		if wanted[name] == one.cluster.UID {
			continue
		}
		one.cancel()
		delete(f.following, name)
		f.followed.Delete(one.cluster)
		if served[name] != one.cluster.UID {
			f.remove(ctx, one.cluster)
		}
	}
	for name, uid := range wanted {
		if _, ok := f.following[name]; !ok && uid != "" {
			following, cancel := context.WithCancel(ctx)
			one := &followed{&follower{shared: f.shared, cluster: fleetindex.Cluster{Name: name, UID: uid}, differ: differing{}}, cancel}
			f.following[name] = one
			f.followed.Store(one.cluster, &one.progress)
			f.running.Go(func() { one.run(following) })
		}
	}
	f.report(time.Now())
}

// sweep removes the clusters of the store that went while no replica followed them.
func (f *fleet) sweep(ctx context.Context) {
	if f.hub.Synced() != nil {
		return
	}
	stored, err := f.store.Clusters(ctx)
	if err != nil {
		f.failed(ctx, err, "Failed to read which clusters the store has")
		return
	}
	served := map[string]bool{}
	for _, name := range f.hub.Names() {
		served[name] = true
	}
	for _, c := range stored {
		if f.owns(c.Name) && !served[c.Name] {
			f.remove(ctx, c)
		}
	}
}

func (f *fleet) remove(ctx context.Context, c fleetindex.Cluster) {
	if err := f.store.Remove(ctx, c); err != nil {
		f.failed(ctx, err, "Failed to remove the rows of a cluster; will try again", "cluster", c.Name)
	}
}

// measure looks at the size of the store, and at what can be deleted.
func (f *fleet) measure(ctx context.Context) {
	size, err := f.store.Size(ctx)
	if err != nil {
		f.failed(ctx, err, "Failed to read the size of the store")
		return
	}
	f.metrics.storeBytes.Set(float64(size))
	if err := f.store.DropDefinitions(ctx); err != nil {
		f.failed(ctx, err, "Failed to delete definitions of no feed; will try again")
	}
}

// report sets the metrics of all clusters.
func (f *fleet) report(now time.Time) {
	var rows int64
	states := map[string]int{stateCurrent: 0, stateBehind: 0, stateRefused: 0}
	var oldest time.Duration
	for _, one := range f.following {
		rows += one.rows.Load()
		heard := one.heard.Load()
		age := now.Sub(time.Unix(0, heard))
		switch {
		case heard != 0 && age <= currentFor:
			states[stateCurrent]++
		case one.refused.Load():
			states[stateRefused]++
			continue
		default:
			states[stateBehind]++
		}
		if heard != 0 {
			oldest = max(oldest, age)
		}
	}
	f.metrics.rows.Set(float64(rows))
	for state, n := range states {
		f.metrics.clusters.WithLabelValues(state).Set(float64(n))
	}
	f.metrics.oldest.Set(oldest.Seconds())
}
