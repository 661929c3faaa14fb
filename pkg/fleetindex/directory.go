package fleetindex

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// Ids have 63 bits: 11 of the resource, 20 of the cluster and 32 of the row.
const (
	clusterBits, rowBits = 20, 32
	maxResource          = 1<<(63-clusterBits-rowBits) - 1
	maxCluster           = 1<<clusterBits - 1
	maxRow               = 1<<rowBits - 1
)

func feedID(resource, cluster int64) int64 { return resource<<clusterBits | cluster }

// firstRow and lastRow bound the ids of a feed's rows.
func firstRow(feed int64) int64 { return feed << rowBits }
func lastRow(feed int64) int64  { return feed<<rowBits | maxRow }

// directory is which clusters have feeds of which resources. Each change to it has a number, by which
// a replica finds what others have changed.
type directory struct {
	mu                 sync.RWMutex
	sequence, removals int64
	resources          map[int64]feed.Resource
	definitions        map[int64]*feed.Definition
	clusters           map[int64]*listedCluster
	// ids are those of clusters by their names.
	ids map[string]int64
	// feeds have the ids of all in order, unless it is nil and has to be made again.
	feeds []int64
}

// Cluster is whose rows are written.
type Cluster struct {
	Name string
	// UID is that of the ManagedCluster: with another UID the name is another cluster's, and the rows
	// of the former one are deleted.
	UID string
}

type listedCluster struct {
	Cluster
	feeds map[int64]*feed.Definition
}

// place is a feed in which rows may be, and the namespaces of it that are asked for.
type place struct {
	feed       int64
	cluster    string
	definition *feed.Definition
	scope      Scope
	// index is the feed's place in the order of all.
	index int
}

// refresh reads what has changed.
func (d *directory) refresh(ctx context.Context, db *database) error {
	sequence, removals, err := db.readSequence(ctx)
	if err != nil {
		return err
	}
	d.mu.RLock()
	isCurrent := d.resources != nil && d.sequence == sequence && d.removals == removals
	d.mu.RUnlock()
	if isCurrent {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.resources == nil || d.removals != removals {
		d.sequence, d.resources, d.definitions = 0, map[int64]feed.Resource{}, map[int64]*feed.Definition{}
		d.clusters, d.ids = map[int64]*listedCluster{}, map[string]int64{}
	}
	if d.sequence >= sequence && d.removals == removals {
		return nil // another call was faster
	}
	if err := d.readLocked(ctx, db); err != nil {
		return fmt.Errorf("reading which clusters are indexed: %w", err)
	}
	d.sequence, d.removals, d.feeds = sequence, removals, nil
	return nil
}

// readSequence returns the numbers of the last change, and of the last removal of a cluster.
func (db *database) readSequence(ctx context.Context) (sequence, removals int64, err error) {
	err = db.reads.QueryRowContext(ctx, db.dialect.sql(`SELECT (SELECT value FROM meta WHERE name = ?), (SELECT value FROM meta WHERE name = ?)`), metaSequence, metaRemovals).Scan(&sequence, &removals)
	return sequence, removals, err
}

// readLocked reads what changed after d.sequence. Its answers may be newer than the
// sequence that was read before, and are then read again.
func (d *directory) readLocked(ctx context.Context, db *database) error {
	var id, other int64
	var name, group, uid string
	err := db.each(ctx, `SELECT id, grp, name FROM resource`, nil, []any{&id, &group, &name}, func() error {
		d.resources[id] = feed.Resource{Group: group, Resource: name}
		return nil
	})
	if err != nil {
		return err
	}
	var newest int64
	for id := range d.definitions {
		newest = max(newest, id)
	}
	err = db.each(ctx, `SELECT id, content FROM definition WHERE id > ?`, []any{newest}, []any{&id, &name}, func() error {
		definition := &feed.Definition{}
		d.definitions[id] = definition
		return json.NewDecoder(strings.NewReader(name)).Decode(definition)
	})
	if err != nil {
		return err
	}
	err = db.each(ctx, `SELECT id, name, uid FROM cluster WHERE changed > ?`, []any{d.sequence}, []any{&id, &name, &uid}, func() error {
		d.clusters[id], d.ids[name] = &listedCluster{Cluster{name, uid}, map[int64]*feed.Definition{}}, id
		return nil
	})
	if err != nil {
		return err
	}
	return db.each(ctx, `SELECT f.id, f.definition FROM feed f JOIN cluster c ON c.id = f.cluster WHERE c.changed > ?`, []any{d.sequence}, []any{&id, &other}, func() error {
		if cluster := d.clusters[id&maxCluster]; cluster != nil {
			cluster.feeds[id] = d.definitions[other]
		}
		return nil
	})
}

// places returns the feeds whose cluster and definition are wanted, in the order of their ids.
func (d *directory) places(cluster func(Cluster) bool, definition func(*feed.Definition) bool) []place {
	d.mu.RLock()
	for d.feeds == nil {
		d.mu.RUnlock()
		d.sort()
		d.mu.RLock()
	}
	defer d.mu.RUnlock()
	wanted := map[int64]bool{}
	for id, c := range d.clusters {
		wanted[id] = cluster(c.Cluster)
	}
	var places []place
	for i, id := range d.feeds {
		if c := d.clusters[id&maxCluster]; wanted[id&maxCluster] && c.feeds[id] != nil && definition(c.feeds[id]) {
			places = append(places, place{feed: id, cluster: c.Name, definition: c.feeds[id], index: i})
		}
	}
	return places
}

// find returns the feed of a resource in a cluster, if there is one. Another cluster with the name has none.
func (d *directory) find(r feed.Resource, c Cluster) (p place, found bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for resource, known := range d.resources {
		if known != r {
			continue
		}
		id := feedID(resource, d.ids[c.Name])
		if listed := d.clusters[d.ids[c.Name]]; listed != nil && listed.Cluster == c && listed.feeds[id] != nil {
			return place{feed: id, cluster: c.Name, definition: listed.feeds[id]}, true
		}
	}
	return place{}, false
}

func (d *directory) sort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.feeds = []int64{}
	for _, cluster := range d.clusters {
		for id := range cluster.feeds {
			d.feeds = append(d.feeds, id)
		}
	}
	slices.Sort(d.feeds)
}

// allowed returns the places in which the caller may list anything, with their scopes.
func (r Rights) allowed(places []place) (allowed []place) {
	if r == nil {
		return nil
	}
	for _, p := range places {
		if p.scope = r(p.cluster, p.definition.Resource); p.scope.any() {
			allowed = append(allowed, p)
		}
	}
	return allowed
}
