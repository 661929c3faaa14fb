package fleetindex

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// Found is a row that was found. Its definition is shared and must not be changed.
type Found struct {
	Cluster    string
	Definition *feed.Definition
	feed.Row

	id, feed int64
}

const foundColumns = `r.id, r.feed, r.namespace, r.name, r.uid, r.version, r.created, r.deleted, r.labels, r.owner, r.images, r.node, r.cells`

// scan reads the columns foundColumns.
func (f *Found) scan(rows *sql.Rows) error {
	var labels, images, cells string
	err := rows.Scan(&f.id, &f.feed, (*namespace)(&f.Namespace), &f.Name, &f.UID, &f.Version, &f.Created, &f.Deleted, &labels, &f.Owner, &images, &f.Node, &cells)
	if err != nil {
		return err
	}
	f.Labels, f.Cells = readLabels(labels), json.RawMessage(cells)
	if images != "" {
		f.Images = strings.Split(images, "\n")
	}
	return nil
}

// find runs a statement that selects foundColumns. places has the feeds that the rows are of.
func (s *Store) find(ctx context.Context, places map[int64]*place, statement string, args []any) ([]Found, error) {
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []Found
	for rows.Next() {
		var f Found
		if err := f.scan(rows); err != nil {
			return nil, err
		}
		p, ok := places[f.feed]
		if !ok || !p.scope.Has(f.Namespace) {
			continue // the statement asks for none of these: rights do not rest on it alone
		}
		f.Cluster, f.Definition = p.cluster, p.definition
		found = append(found, f)
	}
	return found, rows.Err()
}

func byFeed(places []place) map[int64]*place {
	m := make(map[int64]*place, len(places))
	for i := range places {
		m[places[i].feed] = &places[i]
	}
	return m
}

// condition is a part of a statement and its arguments.
type condition struct {
	sql  strings.Builder
	args []any
}

func (c *condition) and(sql string, args ...any) {
	if c.sql.Len() > 0 {
		c.sql.WriteString(" AND ")
	}
	c.sql.WriteString(sql)
	c.args = append(c.args, args...)
}
