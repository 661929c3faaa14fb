package fleetindex

import (
	"context"
	"database/sql"
	"sync"
)

// maxBatch bounds the writes of one transaction.
const maxBatch = 64

// batches are the transactions of an engine with one writer. Writes that wait for it at the same time share one: to begin,
// to commit, and to write the words of a transaction to the full-text index costs as much as a few rows.
type batches struct {
	db *sql.DB

	mu      sync.Mutex
	waiting []*waitingWrite
	isBusy  bool
}

// waitingWrite is one write.
type waitingWrite struct {
	ctx context.Context
	run func(*transaction) error
	// done gets the error when the write is committed, or will not be.
	done chan error
}

// write returns when the write is committed, or is not and will not be. It may run more than once; only its last run counts.
func (b *batches) write(ctx context.Context, run func(*transaction) error) error {
	w := &waitingWrite{ctx, run, make(chan error, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	isFirst := !b.isBusy
	b.isBusy = true
	b.mu.Unlock()
	if isFirst {
		go b.runAll()
	}
	return <-w.done
}

// runAll runs batches until nothing waits.
func (b *batches) runAll() {
	for {
		b.mu.Lock()
		batch := b.waiting[:min(len(b.waiting), maxBatch)]
		b.waiting = b.waiting[len(batch):]
		b.isBusy = len(batch) > 0
		b.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if !b.runTogether(batch) {
			for _, w := range batch {
				w.done <- b.runAlone(w)
			}
		}
	}
}

// runTogether runs writes in one transaction, and reports whether all of them are committed. A savepoint for each, which would
// keep one that fails from undoing the others, has the full-text index written every time.
func (b *batches) runTogether(batch []*waitingWrite) bool {
	if len(batch) == 1 {
		return false
	}
	err := inTransaction(context.Background(), b.db, &sqlite, func(tx *transaction) error {
		for _, w := range batch {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			if err := w.run(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false
	}
	for _, w := range batch {
		w.done <- nil
	}
	return true
}

func (b *batches) runAlone(w *waitingWrite) error {
	return inTransaction(w.ctx, b.db, &sqlite, w.run)
}
