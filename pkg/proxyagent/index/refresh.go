package index

import (
	"container/heap"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// maxRelative bounds how many rows with relative times are remembered, and refreshPause how often one is asked for.
	maxRelative  = 20_000
	refreshPause = 200 * time.Millisecond
)

// refresher asks again for rows whose cells say times that are relative to now, when they are older than a tenth of
// what they say. It asks for one at a time, and no more than five in a second; under more, cells are older.
type refresher struct {
	mu  sync.Mutex
	due dueRows
	// at is when a row is due: an entry of due with another time is of no use any more.
	at map[feed.Key]time.Time
	// asked is the row that is asked for, unless something was heard of it meanwhile.
	asked *feed.Key
}

// dueRow is a row that is due at a time.
type dueRow struct {
	key feed.Key
	at  time.Time
}

// dueRows is a heap, the earliest first.
type dueRows []dueRow

func (d dueRows) Len() int           { return len(d) }
func (d dueRows) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dueRows) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dueRows) Push(x any)        { *d = append(*d, x.(dueRow)) }
func (d *dueRows) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func newRefresher() *refresher { return &refresher{at: map[feed.Key]time.Time{}} }

// add remembers the rows that are due some time, and forgets the others.
func (r *refresher) add(rows []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		delete(r.at, row.Key)
		if r.asked != nil && *r.asked == row.Key {
			r.asked = nil
		}
		if row.due > 0 && len(r.due) < maxRelative {
			at := time.Now().Add(row.due)
			r.at[row.Key] = at
			heap.Push(&r.due, dueRow{row.Key, at})
		}
	}
}

// next returns a row that is due.
func (r *refresher) next() (feed.Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.due) > 0 {
		first := r.due[0]
		isCurrent := r.at[first.key].Equal(first.at)
		if isCurrent && first.at.After(time.Now()) {
			break
		}
		heap.Pop(&r.due)
		if isCurrent {
			delete(r.at, first.key)
			r.asked = &first.key
			return first.key, true
		}
	}
	return feed.Key{}, false
}

// isAsked reports whether nothing was heard of the row that was asked for.
func (r *refresher) isAsked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked != nil
}
