package fleetindex

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

// Count is how many rows have some values.
type Count struct {
	// Values are those of the keys, in the same order.
	Values []string
	N      int64
}

// Counts are the rows that match a query.
type Counts struct {
	// Groups are those with the most rows.
	Groups []Count
	// Total is the number of rows in all groups, also those beyond the limit, and Left how many groups are beyond it.
	Total int64
	Left  int
}

// countedColumns are the columns of keys that rows have themselves.
var countedColumns = map[query.Key]string{query.Namespace: "r.namespace", query.Status: "r.status", query.Node: "r.node"}

// Count counts the rows that match a query, by the values of keys, which are some of query.Counted. Limit
// bounds the groups.
func (s *Store) Count(ctx context.Context, o SearchOptions, by ...query.Key) (*Counts, error) {
	if o.Limit <= 0 || o.Limit > MaxFound {
		o.Limit = MaxFound
	}
	for i, key := range by {
		if !slices.Contains(query.Counted, key) || slices.Contains(by[:i], key) {
			return nil, fmt.Errorf("rows are counted by some of %v, each once, and not by %v", query.Counted, by)
		}
	}
	search, err := s.newSearch(ctx, o)
	if err != nil {
		return nil, err
	}
	if !search.needsWords {
		search.match = "" // an index of the columns has all that is counted
	}
	c := counter{search: search, by: by, places: byFeed(search.places), groups: map[string]*Count{}}
	for _, r := range runs(search.places) {
		if err := c.read(ctx, r); err != nil {
			return nil, fmt.Errorf("counting: %w", err)
		}
	}
	return c.result(o.Limit), nil
}

// counter is one call of Count.
type counter struct {
	*search
	by     []query.Key
	places map[int64]*place
	groups map[string]*Count
	total  int64
}

// read counts the rows of a run.
func (c *counter) read(ctx context.Context, r run) error {
	var columns []string
	var into []any
	values := make([]string, len(c.by)) // those of the keys that have columns
	for _, key := range c.by {
		column, ok := countedColumns[key]
		if !ok {
			continue
		}
		value := &values[len(columns)]
		if columns = append(columns, column); key == query.Namespace {
			into = append(into, (*namespace)(value))
		} else {
			into = append(into, value)
		}
	}
	tables, id := c.tables()
	feed := "r.feed"
	conditions := c.conditions(r)
	switch d := c.store.dialect; {
	case c.match == "":
		conditions.and("r.feed BETWEEN ? AND ?", r.first, r.last)
	case len(columns) == 0 && r.scope.All && c.compared.sql.Len() == 0:
		tables, feed = d.docsOnly, d.docFeed
		fallthrough
	default:
		conditions.and(id+" BETWEEN ? AND ?", firstRow(r.first), lastRow(r.last))
	}
	columns = append(columns, feed)
	list := strings.Join(columns, ", ")
	var n, of int64
	return c.store.each(ctx, `SELECT `+list+`, count(*) FROM `+tables+` WHERE `+conditions.sql.String()+` GROUP BY `+list, conditions.args, append(into, &of, &n), func() error {
		if p := c.places[of]; p != nil {
			c.add(p, values, n)
		}
		return nil
	})
}

// add adds rows of a feed. values are those of the keys that have columns.
func (c *counter) add(p *place, values []string, n int64) {
	all := make([]string, len(c.by))
	for i, key := range c.by {
		switch key {
		case query.Cluster:
			all[i] = p.cluster
		case query.Kind:
			all[i] = p.definition.Kind
		default:
			all[i], values = values[0], values[1:]
		}
	}
	group := strings.Join(all, "\x00")
	if c.groups[group] == nil {
		c.groups[group] = &Count{Values: all}
	}
	c.groups[group].N += n
	c.total += n
}

func (c *counter) result(limit int) *Counts {
	counts := &Counts{Total: c.total}
	for _, count := range c.groups {
		counts.Groups = append(counts.Groups, *count)
	}
	slices.SortFunc(counts.Groups, func(a, b Count) int {
		return cmp.Or(-cmp.Compare(a.N, b.N), slices.Compare(a.Values, b.Values))
	})
	if len(counts.Groups) > limit {
		counts.Left, counts.Groups = len(counts.Groups)-limit, counts.Groups[:limit]
	}
	return counts
}
