package fleetindex

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// ErrFenced is the error of writes after another process has claimed the cluster, or it was removed.
var ErrFenced = errors.New("another process writes for the cluster now")

// Writer writes the rows of one cluster. Its methods may be called at the same time.
type Writer struct {
	store     *Store
	name      string
	id, epoch int64

	mu    sync.Mutex
	feeds map[feed.Resource]Feed
}

// Feed is the state of one resource of a cluster.
type Feed struct {
	Definition feed.Definition
	// Version is the resourceVersion that the rows are at least as new as; empty before the first.
	Version string
	// Synced says that all objects were there once.
	Synced bool
	// Incomplete says which rows are missing, if any were refused.
	Incomplete string
	// Total is the number of rows.
	Total int64

	id, next int64
}

// Claim makes the caller the one process that writes for a cluster. The writes of earlier callers
// are refused from then on: those that have not been committed wait, and fail.
func (s *Store) Claim(ctx context.Context, c Cluster) (*Writer, error) {
	w := &Writer{store: s, name: c.Name, feeds: map[feed.Resource]Feed{}}
	err := s.write(ctx, func(tx *transaction) (err error) {
		clear(w.feeds)
		if w.epoch, err = tx.nextChange(ctx); err != nil {
			return err
		}
		if err := w.find(ctx, tx, c); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, `UPDATE cluster SET epoch = ? WHERE id = ?`, w.epoch, w.id); err != nil {
			return err
		}
		return w.readFeeds(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("claiming the rows of cluster %q: %w", c.Name, err)
	}
	return w, nil
}

// nextChange numbers a change to the directory, and keeps others from changing it until the transaction
// ends. Transactions call it before they lock anything else.
func (tx *transaction) nextChange(ctx context.Context) (n int64, err error) {
	err = tx.queryRow(ctx, `UPDATE meta SET value = value + 1 WHERE name = ? RETURNING value`, metaSequence).Scan(&n)
	return n, err
}

// find finds the cluster, or adds it.
func (w *Writer) find(ctx context.Context, tx *transaction, c Cluster) error {
	var uid string
	err := tx.queryRow(ctx, `SELECT id, uid FROM cluster WHERE name = ?`, c.Name).Scan(&w.id, &uid)
	if errors.Is(err, sql.ErrNoRows) {
		if err := tx.queryRow(ctx, `SELECT coalesce(max(id), 0) + 1 FROM cluster`).Scan(&w.id); err != nil {
			return err
		}
		if w.id > maxCluster {
			return fmt.Errorf("there are %d clusters, the most that a store has", maxCluster)
		}
		_, err = tx.exec(ctx, `INSERT INTO cluster (id, name, uid, epoch, heard, changed) VALUES (?, ?, ?, 0, 0, ?)`, w.id, c.Name, c.UID, w.epoch)
		return err
	}
	if err != nil || uid == c.UID {
		return err
	}
	if err := tx.deleteFeeds(ctx, `cluster = ?`, w.id); err != nil {
		return err
	}
	if err := tx.forgetDecisions(ctx, Cluster{c.Name, uid}); err != nil {
		return err
	}
	_, err = tx.exec(ctx, `UPDATE cluster SET uid = ?, heard = 0, changed = ? WHERE id = ?`, c.UID, w.epoch, w.id)
	return err
}

func (w *Writer) readFeeds(ctx context.Context, tx *transaction) error {
	rows, err := tx.query(ctx, `SELECT f.id, f.version, f.synced, f.incomplete, f.total, f.next, d.content FROM feed f JOIN definition d ON d.id = f.definition WHERE f.cluster = ?`, w.id)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var f Feed
		var content string
		var synced int64
		if err := rows.Scan(&f.id, &f.Version, &synced, &f.Incomplete, &f.Total, &f.next, &content); err != nil {
			return err
		}
		f.Synced = synced != 0
		if err := json.NewDecoder(strings.NewReader(content)).Decode(&f.Definition); err != nil {
			return err
		}
		w.feeds[f.Definition.Resource] = f
	}
	return rows.Err()
}

// deleteFeeds deletes the feeds that a condition is true of, with their rows.
func (tx *transaction) deleteFeeds(ctx context.Context, condition string, args ...any) error {
	const ofFeeds = `feed IN (SELECT id FROM feed WHERE `
	if !tx.dialect.wordsInRow {
		if _, err := tx.exec(ctx, `DELETE FROM words WHERE rowid IN (SELECT id FROM object WHERE `+ofFeeds+condition+`))`, args...); err != nil {
			return err
		}
	}
	if _, err := tx.exec(ctx, `DELETE FROM object WHERE `+ofFeeds+condition+`)`, args...); err != nil {
		return err
	}
	_, err := tx.exec(ctx, `DELETE FROM feed WHERE `+condition, args...)
	return err
}

// Feeds returns the state of the cluster's resources.
func (w *Writer) Feeds() map[feed.Resource]Feed {
	w.mu.Lock()
	defer w.mu.Unlock()
	feeds := map[feed.Resource]Feed{}
	for resource, f := range w.feeds {
		feeds[resource] = f
	}
	return feeds
}

// Define says what a resource is like on the cluster; rows can be applied from then on. If it was
// different before, its rows are deleted: their cells have no columns any more. Otherwise they
// stay, and nothing is incomplete until a row is refused again.
func (w *Writer) Define(ctx context.Context, d feed.Definition) error {
	if err := d.Check(); err != nil {
		return fmt.Errorf("defining %s: %w", d.Resource, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.feeds[d.Resource]
	isSame := ok && sameDefinition(f.Definition, d)
	if isSame && f.Incomplete == "" {
		return nil
	}
	before := f.id
	err := w.store.write(ctx, func(tx *transaction) error {
		change, err := w.nextChange(ctx, tx)
		if err != nil {
			return err
		}
		if isSame {
			f.Incomplete = ""
			_, err := tx.exec(ctx, `UPDATE feed SET incomplete = '' WHERE id = ?`, before)
			return err
		}
		if ok {
			if err := tx.deleteFeeds(ctx, `id = ?`, before); err != nil {
				return err
			}
		}
		if f, err = w.insertFeed(ctx, tx, d); err != nil {
			return err
		}
		_, err = tx.exec(ctx, `UPDATE cluster SET changed = ? WHERE id = ?`, change, w.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("defining %s of cluster %q: %w", d.Resource, w.name, err)
	}
	w.feeds[d.Resource] = f
	return nil
}

func sameDefinition(a, b feed.Definition) bool {
	return a.Resource == b.Resource && a.Version == b.Version && a.Kind == b.Kind && a.Namespaced == b.Namespaced && slices.Equal(a.Columns, b.Columns)
}

// fence fails unless the writer is the last that claimed the cluster. Until the transaction ends nobody
// else can claim it.
func (w *Writer) fence(ctx context.Context, tx *transaction) error {
	result, err := tx.exec(ctx, `UPDATE cluster SET epoch = epoch WHERE id = ? AND epoch = ?`, w.id, w.epoch)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, ErrFenced)
	}
	return nil
}

// insertFeed adds a feed, and what it needs.
func (w *Writer) insertFeed(ctx context.Context, tx *transaction, d feed.Definition) (Feed, error) {
	content, err := json.Marshal(d)
	if err != nil {
		return Feed{}, err
	}
	resource, err := tx.findOrInsert(ctx, "resource", `grp = ? AND name = ?`, "grp, name", d.Group, d.Resource.Resource)
	if err != nil {
		return Feed{}, err
	}
	if resource > maxResource {
		return Feed{}, fmt.Errorf("there are %d resources, the most that a store has", maxResource)
	}
	definition, err := tx.findOrInsert(ctx, "definition", tx.dialect.sameContent, "content", string(content))
	if err != nil {
		return Feed{}, err
	}
	f := Feed{Definition: d, id: feedID(resource, w.id)}
	_, err = tx.exec(ctx, `INSERT INTO feed (id, cluster, definition, version, synced, total, next, incomplete) VALUES (?, ?, ?, '', 0, 0, 0, '')`, f.id, w.id, definition)
	return f, err
}

// findOrInsert returns the id of the row of a table that a condition is true of, and inserts one
// with the values if there is none.
func (tx *transaction) findOrInsert(ctx context.Context, table, condition, columns string, values ...any) (id int64, err error) {
	err = tx.queryRow(ctx, `SELECT id FROM `+table+` WHERE `+condition, values...).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	if err := tx.queryRow(ctx, `SELECT coalesce(max(id), 0) + 1 FROM `+table).Scan(&id); err != nil {
		return 0, err
	}
	_, err = tx.exec(ctx, `INSERT INTO `+table+` (id, `+columns+`) VALUES (?, `+marks(len(values), "?")+`)`, append([]any{id}, values...)...)
	return id, err
}

// nextChange returns the number of a change to the directory that this writer makes, if it is still the
// cluster's.
func (w *Writer) nextChange(ctx context.Context, tx *transaction) (change int64, err error) {
	if change, err = tx.nextChange(ctx); err != nil {
		return 0, err
	}
	return change, w.fence(ctx, tx)
}

// Drop deletes the rows of a resource that is not indexed any more.
func (w *Writer) Drop(ctx context.Context, r feed.Resource) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.feeds[r]
	if !ok {
		return nil
	}
	err := w.store.write(ctx, func(tx *transaction) error {
		change, err := w.nextChange(ctx, tx)
		if err != nil {
			return err
		}
		if err := tx.deleteFeeds(ctx, `id = ?`, f.id); err != nil {
			return err
		}
		_, err = tx.exec(ctx, `UPDATE cluster SET changed = ? WHERE id = ?`, change, w.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("deleting the %s of cluster %q: %w", r, w.name, err)
	}
	delete(w.feeds, r)
	return nil
}

// Heard says as of when the rows of clusters are, by their writers. Writers that are fenced are passed over.
func (s *Store) Heard(ctx context.Context, at map[*Writer]time.Time) error {
	// In one order, as all that lock several clusters.
	writers := slices.SortedFunc(maps.Keys(at), func(a, b *Writer) int { return cmp.Compare(a.id, b.id) })
	err := s.write(ctx, func(tx *transaction) error {
		for _, w := range writers {
			if _, err := tx.exec(ctx, `UPDATE cluster SET heard = ? WHERE id = ? AND epoch = ?`, at[w].UnixMilli(), w.id, w.epoch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing when %d clusters were heard: %w", len(at), err)
	}
	return nil
}

// Clusters returns the clusters that the store has, in no order.
func (s *Store) Clusters(ctx context.Context) (clusters []Cluster, err error) {
	var c Cluster
	err = s.each(ctx, `SELECT name, uid FROM cluster`, nil, []any{&c.Name, &c.UID}, func() error {
		clusters = append(clusters, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading which clusters there are: %w", err)
	}
	return clusters, nil
}

// Remove deletes a cluster with its rows. Its writers are refused from then on. Nothing happens if the
// store does not have the cluster.
func (s *Store) Remove(ctx context.Context, c Cluster) error {
	err := s.write(ctx, func(tx *transaction) error {
		if _, err := tx.nextChange(ctx); err != nil {
			return err
		}
		var id int64
		err := tx.queryRow(ctx, `SELECT id FROM cluster WHERE name = ? AND uid = ?`, c.Name, c.UID).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, `DELETE FROM cluster WHERE id = ?`, id); err != nil {
			return err
		}
		if err := tx.deleteFeeds(ctx, `cluster = ?`, id); err != nil {
			return err
		}
		if err := tx.forgetDecisions(ctx, c); err != nil {
			return err
		}
		_, err = tx.exec(ctx, `UPDATE meta SET value = value + 1 WHERE name = ?`, metaRemovals)
		return err
	})
	if err != nil {
		return fmt.Errorf("removing cluster %q: %w", c.Name, err)
	}
	return nil
}
