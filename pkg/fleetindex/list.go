package fleetindex

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// maxFeeds bounds the feeds that a statement of a list reads, and maxPage its rows.
	maxFeeds, maxPage = 100, 2000
)

// ListOptions say what to list.
type ListOptions struct {
	Resource feed.Resource
	// Clusters reports which clusters are wanted. Nil means all.
	Clusters func(string) bool
	// Rights are the caller's. A list of all namespaces needs the right to all in a cluster, as at
	// the cluster itself.
	Rights Rights
	// Namespace is the only one that is wanted; empty means all.
	Namespace string
	Labels    labels.Selector
	// Fields may select by metadata.name and metadata.namespace.
	Fields fields.Selector
	// Limit is how many rows there are at most; 0 means all.
	Limit int
	// Continue is that of the page before.
	Continue string
}

// Listed is what a list is based on.
type Listed struct {
	// Continue leads to the next page; empty if this was the last one.
	Continue string
	// Feeds are the clusters' feeds that the list is of, also those without rows, in the order of the clusters.
	// They were read before the rows, which may be newer.
	Feeds []ListedFeed
}

// ListedFeed is the state of a feed at the time of a list.
type ListedFeed struct {
	Cluster    string
	Definition *feed.Definition
	Version    string
	Synced     bool
	Incomplete string
	// Heard is when the rows were known to be those of the cluster.
	Heard time.Time

	total int64
}

// List calls visit with the rows of a resource, in the order of cluster, namespace and name. It
// holds no more than a few thousand rows and no transaction meanwhile, so visit may be slow. Rows of one
// cluster that were written during the list may be in it or not.
func (s *Store) List(ctx context.Context, o ListOptions, visit func(*Found) error) (*Listed, error) {
	l := lister{store: s, ListOptions: o}
	after, err := s.tokens.unseal(o.Continue, l.request())
	if err != nil {
		return nil, err
	}
	if err := l.readSelectors(); err != nil {
		return nil, err
	}
	if err := s.directory.refresh(ctx, &s.database); err != nil {
		return nil, err
	}
	l.places = o.Rights.allowed(s.directory.places(o.Clusters, func(d *feed.Definition) bool { return d.Resource == o.Resource }))
	l.places = slices.DeleteFunc(l.places, func(p place) bool { return !l.mayList(p) })
	slices.SortFunc(l.places, func(a, b place) int { return cmp.Compare(a.cluster, b.cluster) })
	listed := &Listed{}
	if err := l.readFeeds(ctx, listed); err != nil {
		return nil, fmt.Errorf("reading the clusters of a list: %w", err)
	}
	l.totals, l.byFeed = listed.Feeds, byFeed(l.places)
	for len(l.places) > 0 && l.places[0].cluster < after.Cluster {
		l.skip(1)
	}
	if len(l.places) > 0 && l.places[0].cluster == after.Cluster {
		l.after = feed.Key{Namespace: after.Namespace, Name: after.Name}
	}
	if listed.Continue, err = l.run(ctx, visit); err != nil {
		return nil, fmt.Errorf("listing %s: %w", o.Resource, err)
	}
	return listed, nil
}

// lister is one list.
type lister struct {
	store *Store
	ListOptions
	places []place
	totals []ListedFeed
	byFeed map[int64]*place
	// selected is the part of the selectors that the statement has; rest is what it has not.
	selected condition
	rest     []labels.Requirement
	// after is the last row that was visited of the first place.
	after feed.Key
}

// request identifies the list, for its tokens.
func (l *lister) request() string {
	text := fmt.Sprintf("list %q %q", l.Resource, l.Namespace)
	if l.Labels != nil {
		text += fmt.Sprintf(" %q", l.Labels.String())
	}
	if l.Fields != nil {
		text += fmt.Sprintf(" %q", l.Fields.String())
	}
	return text
}

func (l *lister) mayList(p place) bool {
	if l.Namespace == "" {
		return p.scope.All
	}
	return p.scope.Has(l.Namespace)
}

// readSelectors reads the selectors.
func (l *lister) readSelectors() error {
	if l.Namespace != "" {
		l.selected.and("r.namespace = ?", l.Namespace)
	}
	if l.Fields != nil {
		for _, r := range l.Fields.Requirements() {
			column, ok := map[string]string{"metadata.name": "r.name", "metadata.namespace": "r.namespace"}[r.Field]
			operator, known := map[selection.Operator]string{selection.Equals: " = ?", selection.DoubleEquals: " = ?", selection.NotEquals: " <> ?"}[r.Operator]
			if !ok || !known {
				return fmt.Errorf("the index does not select by the field %q", r.Field)
			}
			l.selected.and(column+operator, r.Value)
		}
	}
	if l.Labels == nil {
		return nil
	}
	requirements, selectable := l.Labels.Requirements()
	if !selectable {
		l.selected.and("1 = 0")
	}
	for _, r := range requirements {
		if values := r.Values(); len(values) == 1 && (r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In) {
			value, _ := values.PopAny()
			l.selected.and(fmt.Sprintf(l.store.dialect.contains, "r.labels"), "\n"+r.Key()+"="+value+"\n")
			continue
		}
		l.rest = append(l.rest, r)
	}
	return nil
}

// readFeeds reads the state of the places.
func (l *lister) readFeeds(ctx context.Context, listed *Listed) error {
	states := map[int64]ListedFeed{}
	for part := range slices.Chunk(l.places, 500) {
		var ids []any
		for _, p := range part {
			ids = append(ids, p.feed)
		}
		var id, synced, heard int64
		var f ListedFeed
		err := l.store.each(ctx, `SELECT f.id, f.version, f.synced, f.incomplete, f.total, c.heard FROM feed f JOIN cluster c ON c.id = f.cluster WHERE f.id IN (`+marks(len(ids), "?")+`)`, ids,
			[]any{&id, &f.Version, &synced, &f.Incomplete, &f.total, &heard}, func() error {
				f.Synced, f.Heard = synced != 0, time.UnixMilli(heard)
				states[id] = f
				return nil
			})
		if err != nil {
			return err
		}
	}
	// Feeds that were deleted since are in no list.
	l.places = slices.DeleteFunc(l.places, func(p place) bool {
		f, ok := states[p.feed]
		if ok {
			f.Cluster, f.Definition = p.cluster, p.definition
			listed.Feeds = append(listed.Feeds, f)
		}
		return !ok
	})
	return nil
}

func (l *lister) skip(places int) { l.places, l.totals = l.places[places:], l.totals[places:] }

// run visits rows until there are no more or enough, and returns the token of the next page.
func (l *lister) run(ctx context.Context, visit func(*Found) error) (string, error) {
	left, most := l.Limit, maxFeeds
	last := position{}
	for len(l.places) > 0 {
		batch := l.batch(min(most, maxFeeds), left)
		page := maxPage
		if left > 0 && len(l.rest) == 0 {
			page = min(page, left+1)
		}
		rows, err := l.read(ctx, batch, page)
		if err != nil {
			return "", err
		}
		isWhole := len(rows) < page
		if !isWhole && len(batch) > 1 {
			// The rows are not in the order of the clusters, so a part of them says nothing.
			most = len(batch) / 2
			continue
		}
		for i := range rows {
			f := &rows[i]
			if !l.matches(f) {
				continue
			}
			if l.Limit > 0 && left == 0 {
				return l.store.tokens.seal(last, l.request()), nil
			}
			if err := visit(f); err != nil {
				return "", err
			}
			left--
			last = position{Cluster: f.Cluster, Namespace: f.Namespace, Name: f.Name}
		}
		if isWhole {
			l.skip(len(batch))
			l.after = feed.Key{}
			most *= 2
		} else {
			l.after = rows[len(rows)-1].Key
		}
	}
	return "", nil
}

// batch returns the places to read next: as many as have enough rows, if that can be known.
func (l *lister) batch(most, left int) []place {
	most = min(most, len(l.places))
	if l.after != (feed.Key{}) {
		return l.places[:1]
	}
	if l.selected.sql.Len() > 0 || len(l.rest) > 0 {
		return l.places[:most]
	}
	enough := int64(maxPage)
	if l.Limit > 0 {
		enough = min(enough, int64(left))
	}
	n := 0
	for total := int64(0); n < most && (n == 0 || total+l.totals[n].total < enough); n++ {
		total += l.totals[n].total
	}
	return l.places[:n]
}

// read returns rows of some places in the order of a list; if there are more than a page, those
// of the first ids.
func (l *lister) read(ctx context.Context, batch []place, page int) ([]Found, error) {
	var c condition
	ids := make([]any, len(batch))
	order := map[int64]int{}
	for i, p := range batch {
		ids[i] = p.feed
		order[p.feed] = i
	}
	c.and("r.feed IN ("+marks(len(ids), "?")+")", ids...)
	if l.selected.sql.Len() > 0 {
		c.and(l.selected.sql.String(), l.selected.args...)
	}
	if l.after != (feed.Key{}) {
		c.and("(r.namespace, r.name) > (?, ?)", l.after.Namespace, l.after.Name)
	}
	statement := `SELECT ` + foundColumns + ` FROM object r WHERE ` + c.sql.String() + ` ORDER BY r.feed, r.namespace, r.name LIMIT ?`
	rows, err := l.store.find(ctx, l.byFeed, statement, append(c.args, page))
	slices.SortStableFunc(rows, func(a, b Found) int { return order[a.feed] - order[b.feed] })
	return rows, err
}

// matches reports whether a row matches what the statement could not select by.
func (l *lister) matches(f *Found) bool {
	return !slices.ContainsFunc(l.rest, func(r labels.Requirement) bool { return !r.Matches(labels.Set(f.Labels)) })
}
