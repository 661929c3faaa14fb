package fleetindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// MaxChanges bounds the rows of one call of Apply.
const MaxChanges = 1000

// chunk is how many rows a statement has at most.
const chunk = 50

// Changes are what happened to objects of one resource.
type Changes struct {
	Resource feed.Resource
	// Gone are objects that are there no more. They are deleted before Put is written.
	Gone []feed.Key
	// Put are objects that are new or have changed.
	Put []feed.Row
	// Version is the resourceVersion that the rows are then at least as new as; empty if that is not known.
	Version string
	// Synced says that then all objects are there.
	Synced bool
	// Incomplete says why rows are missing, as the agent puts it; empty if none are.
	Incomplete string
}

// Applied says what became of changes.
type Applied struct {
	Put, Gone int
	// Refused counts rows that the store does not take, and Reason says why it did not take the first.
	Refused int
	Reason  string
}

// refuse counts a row. The reason may quote what the cluster sent.
func (a *Applied) refuse(reason string) {
	if a.Refused++; a.Reason == "" {
		a.Reason = feed.CutText(reason)
	}
}

// Apply writes changes, all or none. A row that is refused does not keep others from being written; the
// feed is incomplete from then on, and the row that was there before stays. The resource must be defined.
func (w *Writer) Apply(ctx context.Context, c Changes) (Applied, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.feeds[c.Resource]
	var applied Applied
	var err error
	switch {
	case !ok:
		err = errors.New("the resource is not defined")
	case len(c.Put)+len(c.Gone) > MaxChanges:
		err = fmt.Errorf("there are %d changes, more than %d", len(c.Put)+len(c.Gone), MaxChanges)
	default:
		before, rows := f, prepare(f.Definition, c.Put)
		err = w.store.write(ctx, func(tx *transaction) error {
			f, applied = before, Applied{}
			if err := w.fence(ctx, tx); err != nil {
				return err
			}
			return (&application{tx: tx, feed: &f, free: w.store.maxRows - w.total()}).run(ctx, c, rows, &applied)
		})
	}
	if err != nil {
		return Applied{}, fmt.Errorf("writing %s of cluster %q: %w", c.Resource, w.name, err)
	}
	w.feeds[c.Resource] = f
	return applied, nil
}

// total returns the number of rows of all resources.
func (w *Writer) total() (total int64) {
	for _, f := range w.feeds {
		total += f.Total
	}
	return total
}

// application is one call of Apply.
type application struct {
	tx   *transaction
	feed *Feed
	// free is how many more rows the cluster may have.
	free int64
}

// run writes changes, of which rows are those of Put.
func (a *application) run(ctx context.Context, c Changes, rows []prepared, applied *Applied) error {
	ids, err := a.find(ctx, c)
	if err != nil {
		return err
	}
	var gone []int64
	for _, key := range c.Gone {
		if id, ok := ids[key]; ok {
			gone = append(gone, id)
			delete(ids, key)
		}
	}
	if err := a.remove(ctx, gone); err != nil {
		return err
	}
	applied.Gone = len(gone)
	a.feed.Total -= int64(len(gone))
	a.free += int64(len(gone))
	var written []prepared
	at := map[int64]int{}
	for _, row := range rows {
		if err := a.number(&row, ids); err != nil {
			applied.refuse(err.Error())
			continue
		}
		if earlier, ok := at[row.id]; ok {
			written[earlier] = row // the later one counts
			continue
		}
		at[row.id] = len(written)
		written = append(written, row)
	}
	if err := a.put(ctx, written); err != nil {
		return err
	}
	applied.Put = len(written)
	if c.Version != "" {
		a.feed.Version = c.Version
	}
	a.feed.Synced = a.feed.Synced || c.Synced
	if a.feed.Incomplete == "" {
		a.feed.Incomplete = cmp.Or(applied.Reason, c.Incomplete)
	}
	synced := 0
	if a.feed.Synced {
		synced = 1
	}
	_, err = a.tx.exec(ctx, `UPDATE feed SET version = ?, synced = ?, total = ?, next = ?, incomplete = ? WHERE id = ?`,
		a.feed.Version, synced, a.feed.Total, a.feed.next, a.feed.Incomplete, a.feed.id)
	return err
}

// find returns the ids of the rows that are there already.
func (a *application) find(ctx context.Context, c Changes) (map[feed.Key]int64, error) {
	ids := map[feed.Key]int64{}
	if a.feed.Total == 0 {
		return ids, nil
	}
	keys := append([]feed.Key{}, c.Gone...)
	for i := range c.Put {
		keys = append(keys, c.Put[i].Key)
	}
	for len(keys) > 0 {
		part := keys[:min(len(keys), chunk)]
		keys = keys[len(part):]
		args := []any{a.feed.id}
		for _, key := range part {
			args = append(args, namespace(key.Namespace), key.Name)
		}
		rows, err := a.tx.query(ctx, `SELECT id, namespace, name FROM object WHERE feed = ? AND (namespace, name) IN (VALUES `+marks(len(part), "(?,?)")+`)`, args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var id int64
			var key feed.Key
			if err := rows.Scan(&id, (*namespace)(&key.Namespace), &key.Name); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			ids[key] = id
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func (a *application) remove(ctx context.Context, ids []int64) error {
	for _, id := range ids {
		if !a.tx.dialect.wordsInRow {
			if _, err := a.tx.exec(ctx, `DELETE FROM words WHERE rowid = ?`, id); err != nil {
				return err
			}
		}
		if _, err := a.tx.exec(ctx, `DELETE FROM object WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}

// prepared is a row as it is stored, but for its id, or why it is not.
type prepared struct {
	id     int64
	row    *feed.Row
	status string
	words  document
	err    error
}

// prepare checks rows and makes their words. An engine with one writer would have others wait for that in a transaction.
func prepare(d feed.Definition, rows []feed.Row) []prepared {
	all := make([]prepared, len(rows))
	for i := range rows {
		p := &all[i]
		p.row = &rows[i]
		if p.err = p.row.Check(d); p.err != nil {
			continue
		}
		values, err := p.row.Values()
		if p.err = err; err != nil {
			continue
		}
		p.words = newDocument(p.row, values)
		if column := d.StatusColumn(); column >= 0 {
			p.status, _ = values[column].(string)
		}
	}
	return all
}

// number finds the id of a row that is stored, or gives it one.
func (a *application) number(p *prepared, ids map[feed.Key]int64) error {
	id, ok := ids[p.row.Key]
	switch {
	case p.err != nil:
		return p.err
	case ok:
	case a.free <= 0:
		return errors.New("the cluster has more objects than the index takes")
	case a.feed.next > maxRow:
		return errors.New("the resource had more objects than a feed has numbers")
	default:
		id = firstRow(a.feed.id) + a.feed.next
		ids[p.row.Key] = id
		a.feed.next++
		a.feed.Total++
		a.free--
	}
	p.id = id
	return nil
}

const rowColumns = `id, feed, namespace, name, uid, version, created, deleted, labels, owner, images, node, status, cells`

// put writes rows. Statements with many rows are fewer round trips to PostgreSQL.
func (a *application) put(ctx context.Context, rows []prepared) error {
	for len(rows) > 0 {
		part := rows[:1]
		if len(rows) >= chunk {
			part = rows[:chunk]
		}
		rows = rows[len(part):]
		var args, words []any
		for _, w := range part {
			r := w.row
			args = append(args, w.id, a.feed.id, namespace(r.Namespace), r.Name, r.UID, r.Version, r.Created, r.Deleted,
				writeLabels(r.Labels), r.Owner, strings.Join(r.Images, "\n"), r.Node, w.status, string(r.Cells))
			if a.tx.dialect.wordsInRow {
				args = append(args, w.words.tsvector())
				continue
			}
			content, labels, images := w.words.fts5()
			words = append(words, w.id, content, labels, images)
		}
		if _, err := a.tx.exec(ctx, a.tx.dialect.put(len(part)), args...); err != nil {
			return err
		}
		if len(words) > 0 {
			if _, err := a.tx.exec(ctx, `INSERT OR REPLACE INTO words (rowid, content, labels, images) VALUES `+marks(len(part), "(?,?,?,?)"), words...); err != nil {
				return err
			}
		}
	}
	return nil
}

// put returns the statement that inserts or changes n rows.
func (d *dialect) put(n int) string {
	columns := strings.Split(rowColumns, ", ")
	if d.wordsInRow {
		columns = append(columns, "words")
	}
	changes := make([]string, len(columns)-1)
	for i, column := range columns[1:] {
		changes[i] = column + " = excluded." + column
	}
	return `INSERT INTO object (` + strings.Join(columns, ", ") + `) VALUES ` + marks(n, "("+marks(len(columns), "?")+")") +
		` ON CONFLICT (id) DO UPDATE SET ` + strings.Join(changes, ", ")
}
