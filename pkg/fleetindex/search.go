package fleetindex

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

// MaxFound bounds the rows of one call of Search, and is what SearchOptions.Limit means if it is 0.
const MaxFound = 1000

// SearchOptions say what to search.
type SearchOptions struct {
	Query query.Query
	// Clusters reports which clusters are wanted. Nil means all.
	Clusters func(Cluster) bool
	// Caller is whom tokens are made for. They are good for no other.
	Caller string
	// Rights are the caller's. Rows in single namespaces are found as well.
	Rights Rights
	// Limit is how many rows there are at most.
	Limit int
	// Continue is that of the page before.
	Continue string
}

// Search returns rows that match a query, and the token of the next page, if there is one. Pages come in an
// order of the store's own, by resource and cluster, in which the first rows are found without the others;
// each page is in the order of resource, cluster, namespace and name.
func (s *Store) Search(ctx context.Context, o SearchOptions) ([]Found, string, error) {
	if o.Limit <= 0 || o.Limit > MaxFound {
		o.Limit = MaxFound
	}
	request := fmt.Sprintf("search %q %s", o.Caller, o.Query)
	after, err := s.tokens.unseal(o.Continue, request)
	if err != nil {
		return nil, "", err
	}
	search, err := s.newSearch(ctx, o)
	if err != nil {
		return nil, "", err
	}
	var found []Found
	places := byFeed(search.places)
	for _, r := range runs(search.places) {
		if lastRow(r.last) <= after.Row {
			continue
		}
		tables, id := search.tables()
		c := search.conditions(r)
		c.and(id+" BETWEEN ? AND ?", max(firstRow(r.first), after.Row+1), lastRow(r.last))
		rows, err := s.find(ctx, places, `SELECT `+foundColumns+` FROM `+tables+` WHERE `+c.sql.String()+` ORDER BY `+id+` LIMIT ?`, append(c.args, o.Limit+1-len(found)))
		if err != nil {
			return nil, "", fmt.Errorf("searching: %w", err)
		}
		if found = append(found, rows...); len(found) > o.Limit {
			break
		}
	}
	token := ""
	if len(found) > o.Limit {
		found = found[:o.Limit]
		token = s.tokens.seal(position{Row: found[o.Limit-1].id}, request)
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Definition.Resource.String(), b.Definition.Resource.String()),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found, token, nil
}

// search is one search or count.
type search struct {
	store  *Store
	query  query.Query
	places []place
	// match is the words that a row must have, as the engine writes them, if there are any.
	match string
	// needsWords says that words select more than the columns do that have an index.
	needsWords bool
	// compared are the conditions on the row's columns.
	compared condition
}

func (s *Store) newSearch(ctx context.Context, o SearchOptions) (*search, error) {
	if err := s.directory.refresh(ctx, &s.database); err != nil {
		return nil, err
	}
	q := &search{store: s, query: o.Query}
	q.places = o.Rights.allowed(s.directory.asked(o))
	var words []phrases
	columns := map[query.Key]string{query.Namespace: plainNamespace, query.Name: "r.name", query.Node: "r.node", query.Status: "r.status"}
	for _, term := range o.Query {
		if p, ok := phrasesOf(term); ok {
			words = append(words, p)
			q.needsWords = q.needsWords || term.Key != query.Status && term.Key != query.Namespace
		}
		if column, ok := columns[term.Key]; ok {
			q.compare(column, term)
		}
		if term.Key == query.Label {
			q.compareLabel(term)
		}
	}
	if len(words) > 0 {
		q.match = s.dialect.match(words)
	}
	return q, nil
}

// asked returns the feeds in which rows may match a query.
func (d *directory) asked(o SearchOptions) []place {
	clusters := func(c Cluster) bool {
		return (o.Clusters == nil || o.Clusters(c)) && o.Query.Match(query.Cluster, c.Name)
	}
	wanted := map[*feed.Definition]bool{}
	return d.places(clusters, func(d *feed.Definition) bool {
		isWanted, ok := wanted[d]
		if !ok {
			isWanted = o.Query.Match(query.Kind, d.Names()...)
			wanted[d] = isWanted
		}
		return isWanted
	})
}

// compare adds the condition of a term that compares whole texts.
func (q *search) compare(column string, t query.Term) {
	sql, args := "", []any{}
	for i, value := range t.Values {
		if i > 0 {
			sql += " OR "
		}
		if value.IsPattern() {
			sql += fmt.Sprintf(q.store.dialect.like, column)
			args = append(args, value.Like())
		} else {
			sql += fmt.Sprintf(q.store.dialect.equal, column)
			args = append(args, strings.ToLower(string(value)))
		}
	}
	if t.Not {
		sql = "NOT (" + sql + ")"
	}
	q.compared.and("("+sql+")", args...)
}

// compareLabel adds the condition of a term about a label, whose words alone may be in several labels.
func (q *search) compareLabel(t query.Term) {
	text, isPrefix := strings.CutSuffix(string(t.Values[0]), "*")
	switch {
	case isPrefix:
	case strings.Contains(text, "="):
		text += "\n"
	default:
		text += "="
	}
	q.compared.and(fmt.Sprintf(q.store.dialect.contains, "r.labels"), "\n"+text)
}

// tables returns where rows are selected from, and the column that is their id.
func (q *search) tables() (tables, id string) {
	if q.match == "" {
		return "object r", "r.id"
	}
	return q.store.dialect.docs, q.store.dialect.docID
}

// conditions returns those of the rows of a run.
func (q *search) conditions(r run) *condition {
	c := &condition{}
	if q.match != "" {
		c.and(q.store.dialect.docMatch, q.match)
	}
	if !r.scope.All {
		names := make([]any, len(r.scope.Namespaces))
		for i, name := range r.scope.Namespaces {
			names[i] = namespace(name)
		}
		c.and("r.namespace IN ("+marks(len(names), "?")+")", names...)
	}
	if q.compared.sql.Len() > 0 {
		c.and(q.compared.sql.String(), q.compared.args...)
	}
	return c
}

// run is feeds that follow each other in the store, in the same scope: their rows are a range of ids.
// A statement for each run reads nothing of feeds between them, so neither answers nor the time that they take
// depend on rows that the caller may not see.
type run struct {
	first, last int64
	scope       Scope
}

// runs joins places, which are in the order of ids.
func runs(places []place) (all []run) {
	for i, p := range places {
		if i > 0 && places[i-1].index+1 == p.index && p.scope.equal(places[i-1].scope) {
			all[len(all)-1].last = p.feed
			continue
		}
		all = append(all, run{p.feed, p.feed, p.scope})
	}
	return all
}
