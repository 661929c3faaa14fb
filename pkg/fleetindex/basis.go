package fleetindex

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// FeedName names a feed.
type FeedName struct {
	Cluster  string
	Resource feed.Resource
}

// Searched is a feed in which a query may find rows. Its definition is shared and must not be changed.
type Searched struct {
	FeedName
	Definition *feed.Definition
}

// Feeds returns those in which a query may find rows, whatever they have and whoever asks.
func (s *Store) Feeds(ctx context.Context, o SearchOptions) ([]Searched, error) {
	if err := s.directory.refresh(ctx, &s.database); err != nil {
		return nil, err
	}
	places := s.directory.asked(o)
	feeds := make([]Searched, len(places))
	for i, p := range places {
		feeds[i] = Searched{FeedName{p.cluster, p.definition.Resource}, p.definition}
	}
	return feeds, nil
}

// maxNamespaces bounds the namespaces of one call of Namespaces.
const maxNamespaces = 20_000

// Namespaces returns the namespaces that have rows which match a query, by feed: at most some of each, the first in the order of a list.
// It does not ask what the caller may list, which is to be asked about them; o.Rights says in which feeds it looks.
func (s *Store) Namespaces(ctx context.Context, o SearchOptions, most int) (map[FeedName][]string, error) {
	search, err := s.newSearch(ctx, o)
	if err != nil {
		return nil, err
	}
	found, left := map[FeedName][]string{}, maxNamespaces
	places := byFeed(search.places)
	for _, r := range runs(search.places) {
		if left == 0 {
			break
		}
		tables, id := search.tables()
		c := search.conditions(r)
		c.and(id+" BETWEEN ? AND ?", firstRow(r.first), lastRow(r.last))
		var of int64
		var name string
		err := s.each(ctx, `SELECT DISTINCT r.feed, r.namespace FROM `+tables+` WHERE `+c.sql.String()+` ORDER BY r.feed, r.namespace LIMIT ?`, append(c.args, left), []any{&of, (*namespace)(&name)}, func() error {
			left--
			p := places[of]
			if p == nil || name == "" {
				return nil
			}
			if in := (FeedName{p.cluster, p.definition.Resource}); len(found[in]) < most {
				found[in] = append(found[in], name)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("looking for namespaces: %w", err)
		}
	}
	return found, nil
}

// Partial is a feed that does not have all rows.
type Partial struct {
	FeedName
	// Reason says why.
	Reason string
}

// Basis returns when the rows of each cluster were known to be the cluster's, and which feeds do not have all rows.
func (s *Store) Basis(ctx context.Context) (heard map[string]time.Time, partial []Partial, err error) {
	if err := s.directory.refresh(ctx, &s.database); err != nil {
		return nil, nil, err
	}
	heard = map[string]time.Time{}
	var name, reason string
	var at, id int64
	err = s.each(ctx, `SELECT name, heard FROM cluster WHERE heard > 0`, nil, []any{&name, &at}, func() error {
		heard[name] = time.UnixMilli(at)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading when clusters were heard: %w", err)
	}
	reasons := map[int64]string{}
	err = s.each(ctx, `SELECT id, incomplete FROM feed WHERE synced = 0 OR incomplete <> ''`, nil, []any{&id, &reason}, func() error {
		reasons[id] = cmp.Or(reason, "it has not been read once")
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading which rows are missing: %w", err)
	}
	s.directory.mu.RLock()
	defer s.directory.mu.RUnlock()
	for id, reason := range reasons {
		if c := s.directory.clusters[id&maxCluster]; c != nil && c.feeds[id] != nil {
			partial = append(partial, Partial{FeedName{c.Name, c.feeds[id].Resource}, reason})
		}
	}
	return heard, partial, nil
}
