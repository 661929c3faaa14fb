package fleetindex

import (
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
	// Clusters are those that are wanted, each once. They are visited in this order.
	Clusters []Wanted
	// Caller is whom tokens are made for. They are good for no other.
	Caller string
	// Rights are the caller's. A list of all namespaces needs the right to all in a cluster, as at
	// the cluster itself.
	Rights Rights
	// Reads reports whether the rows of a cluster are read, by the state of its feed. Nil means all.
	Reads func(*Listed) bool
	// Namespace is the only one that is wanted; empty means all.
	Namespace string
	Labels    labels.Selector
	// Fields may select by metadata.name and metadata.namespace.
	Fields fields.Selector
	// Limit is how many rows of each cluster there are at most; 0 means all.
	Limit int
}

// Wanted is a cluster of a list.
type Wanted struct {
	Cluster
	// Continue is that of the page before.
	Continue string
}

// Listed is a cluster's part of a list. It is as the feed was before its rows were read, which may be newer.
type Listed struct {
	Cluster string
	// Definition is nil if there is no feed that the caller may list; then nothing else is known.
	Definition *feed.Definition
	// Version is that of the feed when the first page was read: a watch from it misses nothing of any page.
	Version    string
	Synced     bool
	Incomplete string
	// Heard is when the rows were known to be those of the cluster.
	Heard time.Time
	// Continue leads to the next page, and is empty if this was the last one. Remaining is how many rows follow, and 0
	// where rows are selected. Both are known at the end of the rows.
	Continue  string
	Remaining int64
}

// List calls visit with the rows of a resource, cluster by cluster, in the order of a kube-apiserver, and with
// nil after those of each cluster. It holds no more than a few thousand rows and no transaction meanwhile, so
// visit may be slow. Rows of one cluster that were written during the list may be in it or not.
func (s *Store) List(ctx context.Context, o ListOptions, visit func(*Listed, *Found) error) error {
	l, err := s.newLister(o)
	if err != nil {
		return err
	}
	if err := s.directory.refresh(ctx, &s.database); err != nil {
		return err
	}
	if err := l.readFeeds(ctx); err != nil {
		return fmt.Errorf("reading the clusters of a list: %w", err)
	}
	if err := l.run(ctx, visit); err != nil {
		return fmt.Errorf("listing %s: %w", o.Resource, err)
	}
	return nil
}

// CheckList returns the error of a list that cannot be answered: ErrToken, or one of its selectors.
func (s *Store) CheckList(o ListOptions) error {
	_, err := s.newLister(o)
	return err
}

// lister is one list.
type lister struct {
	store *Store
	ListOptions
	// parts are the clusters that are left, and byFeed has those whose rows are read.
	parts  []*part
	byFeed map[int64]*place
	// selected is the part of the selectors that the statement has; rest is what it has not.
	selected condition
	rest     []labels.Requirement
}

func (s *Store) newLister(o ListOptions) (*lister, error) {
	l := &lister{store: s, ListOptions: o, byFeed: map[int64]*place{}, parts: make([]*part, len(o.Clusters))}
	for i, wanted := range o.Clusters {
		p := &part{Listed: Listed{Cluster: wanted.Name}, cluster: wanted.Cluster}
		if l.parts[i] = p; wanted.Continue == "" {
			continue
		}
		after, err := s.tokens.unseal(wanted.Continue, l.request(wanted.Cluster))
		if err != nil {
			return nil, err
		}
		p.Version, p.seen, p.after = after.Version, after.Seen, feed.Key{Namespace: after.Namespace, Name: after.Name}
	}
	return l, l.readSelectors()
}

// part is a cluster of a list. The place has no feed if no rows are read.
type part struct {
	Listed
	cluster Cluster
	place   place
	total   int64
	// after is the last row that was visited, and seen the number of those up to the end of the page before.
	after feed.Key
	seen  int64
	// visited is the number of rows of this page.
	visited int
}

// request identifies the list of a cluster, for its tokens.
func (l *lister) request(c Cluster) string {
	text := fmt.Sprintf("list %q %q %q %q %q", l.Caller, c.Name, c.UID, l.Resource, l.Namespace)
	if l.Labels != nil {
		text += fmt.Sprintf(" labels %q", l.Labels.String())
	}
	if l.Fields != nil {
		text += fmt.Sprintf(" fields %q", l.Fields.String())
	}
	return text
}

// mayList reports whether the caller may list what is asked for in a cluster.
func (l *lister) mayList(s Scope) bool {
	if l.Namespace == "" {
		return s.All
	}
	return s.Has(l.Namespace)
}

// readSelectors reads the selectors.
func (l *lister) readSelectors() error {
	if l.Namespace != "" {
		l.selected.and("r.namespace = ?", namespace(l.Namespace))
	}
	if l.Fields != nil {
		for _, r := range l.Fields.Requirements() {
			column, ok := map[string]string{"metadata.name": "r.name", "metadata.namespace": "r.namespace"}[r.Field]
			operator, known := map[selection.Operator]string{selection.Equals: " = ?", selection.DoubleEquals: " = ?", selection.NotEquals: " <> ?"}[r.Operator]
			if !ok || !known {
				return fmt.Errorf("the index does not select by the field %q", r.Field)
			}
			var value any = r.Value
			if r.Field == "metadata.namespace" {
				value = namespace(r.Value)
			}
			l.selected.and(column+operator, value)
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

// readFeeds reads the state of the feeds that the caller may list.
func (l *lister) readFeeds(ctx context.Context) error {
	byFeed := map[int64]*part{}
	for _, p := range l.parts {
		place, found := l.store.directory.find(l.Resource, p.cluster)
		if !found || l.Rights == nil {
			continue
		}
		if place.scope = l.Rights(p.Cluster, l.Resource); l.mayList(place.scope) {
			byFeed[place.feed] = p
		}
		p.place, p.place.feed = place, 0 // until its rows are to be read
	}
	ids := make([]any, 0, len(byFeed))
	for id := range byFeed {
		ids = append(ids, id)
	}
	for chunk := range slices.Chunk(ids, 500) {
		var id, synced, heard, total int64
		var version, incomplete string
		err := l.store.each(ctx, `SELECT f.id, f.version, f.synced, f.incomplete, f.total, c.heard FROM feed f JOIN cluster c ON c.id = f.cluster WHERE f.id IN (`+marks(len(chunk), "?")+`)`, chunk,
			[]any{&id, &version, &synced, &incomplete, &total, &heard}, func() error {
				p := byFeed[id]
				p.Definition, p.Synced, p.Incomplete, p.Heard, p.total = p.place.definition, synced != 0, incomplete, time.UnixMilli(heard), total
				if p.Version == "" {
					p.Version = version
				}
				if l.Reads == nil || l.Reads(&p.Listed) {
					p.place.feed = id
					l.byFeed[id] = &p.place
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// run visits rows until there are no more or enough.
func (l *lister) run(ctx context.Context, visit func(*Listed, *Found) error) error {
	for most := maxFeeds; len(l.parts) > 0; {
		batch, feeds := l.batch(most)
		page := maxPage
		if last := batch[len(batch)-1]; feeds == 1 && l.Limit > 0 && len(l.rest) == 0 && last.place.feed != 0 {
			page = min(page, l.Limit-last.visited+1)
		}
		var rows []Found
		if feeds > 0 {
			var err error
			if rows, err = l.read(ctx, batch, page); err != nil {
				return err
			}
		}
		isWhole := len(rows) < page
		if !isWhole && feeds > 1 {
			// The rows are not in the order of the clusters, so a part of them says nothing.
			most = feeds / 2
			continue
		}
		for _, p := range batch {
			n := 0
			for n < len(rows) && rows[n].feed == p.place.feed {
				n++
			}
			if err := l.visit(p, rows[:n], isWhole || p.place.feed == 0, visit); err != nil {
				return err
			}
			if rows = rows[n:]; len(l.parts) > 0 && l.parts[0] == p {
				break // it has more rows
			}
		}
		if isWhole {
			most = min(2*most, maxFeeds)
		}
	}
	return nil
}

// visit visits rows of the first cluster that is left. hasAll says that it has no others.
func (l *lister) visit(p *part, rows []Found, hasAll bool, visit func(*Listed, *Found) error) error {
	for i := range rows {
		f := &rows[i]
		if !l.matches(f) {
			p.after = f.Key
			continue
		}
		if l.Limit > 0 && p.visited == l.Limit {
			seen := p.seen + int64(p.visited)
			p.Continue = l.store.tokens.seal(position{Namespace: p.after.Namespace, Name: p.after.Name, Version: p.Version, Seen: seen}, l.request(p.cluster))
			if l.selected.sql.Len() == 0 && len(l.rest) == 0 {
				p.Remaining = max(1, p.total-seen)
			}
			hasAll = true
			break
		}
		if err := visit(&p.Listed, f); err != nil {
			return err
		}
		p.after = f.Key
		p.visited++
	}
	if !hasAll {
		return nil
	}
	l.parts = l.parts[1:]
	return visit(&p.Listed, nil)
}

// batch returns the clusters to read next, and how many feeds they have: as many as have a page of rows, if that can
// be known. A cluster that has more rows than the limit, or of which a part was read, is the last one, and its feed the only one.
func (l *lister) batch(most int) (batch []*part, feeds int) {
	total := int64(0)
	for n, p := range l.parts {
		if p.place.feed == 0 {
			continue
		}
		isAlone := p.after != (feed.Key{}) || l.Limit > 0 && p.total > int64(l.Limit)
		isMore := l.selected.sql.Len() == 0 && len(l.rest) == 0 && total+p.total >= maxPage
		if feeds > 0 && (isAlone || isMore || feeds >= most) {
			return l.parts[:n], feeds
		}
		feeds++
		if total += p.total; isAlone {
			return l.parts[:n+1], feeds
		}
	}
	return l.parts, feeds
}

// read returns rows of some clusters in the order of a list; if there are more than a page, those
// of the first ids.
func (l *lister) read(ctx context.Context, batch []*part, page int) ([]Found, error) {
	var c condition
	var ids []any
	order := map[int64]int{}
	for i, p := range batch {
		if p.place.feed != 0 {
			ids = append(ids, p.place.feed)
			order[p.place.feed] = i
		}
	}
	c.and("r.feed IN ("+marks(len(ids), "?")+")", ids...)
	if l.selected.sql.Len() > 0 {
		c.and(l.selected.sql.String(), l.selected.args...)
	}
	if last := batch[len(batch)-1]; last.place.feed != 0 && last.after != (feed.Key{}) {
		c.and("(r.namespace, r.name) > (?, ?)", namespace(last.after.Namespace), last.after.Name)
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
