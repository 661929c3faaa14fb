package fairqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrFull is the error of a question for which too many others wait.
var ErrFull = errors.New("too many requests wait for the hub")

// Queue bounds how many do something at a time. Flows take turns, however many
// wait in each.
type Queue[flow comparable] struct {
	// maxOfFlow and max bound how many wait, of one flow and of all.
	maxOfFlow, max int

	mu      sync.Mutex
	free    int
	order   []flow // those in which something waits; the first is next
	waiting map[flow][]chan struct{}
	total   int
}

// New lets n do something at a time, and so many wait.
func New[flow comparable](n, maxOfFlow, maxOfAll int) *Queue[flow] {
	return &Queue[flow]{free: n, maxOfFlow: maxOfFlow, max: maxOfAll, waiting: map[flow][]chan struct{}{}}
}

// Acquire waits for a turn. The caller calls release once.
func (q *Queue[flow]) Acquire(ctx context.Context, f flow) (release func(), err error) {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return q.release, nil
	}
	if q.total >= q.max || len(q.waiting[f]) >= q.maxOfFlow {
		q.mu.Unlock()
		return nil, ErrFull
	}
	turn := make(chan struct{})
	if len(q.waiting[f]) == 0 {
		q.order = append(q.order, f)
	}
	q.waiting[f] = append(q.waiting[f], turn)
	q.total++
	q.mu.Unlock()
	select {
	case <-turn:
		return q.release, nil
	case <-ctx.Done():
	}
	if !q.leave(f, turn) {
		q.release() // the turn came at the same time
	}
	return nil, ctx.Err()
}

// leave reports whether turn was still waiting.
func (q *Queue[flow]) leave(f flow, turn chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting[f], turn)
	if i < 0 {
		return false
	}
	q.remove(f, i)
	return true
}

// remove removes one that waits, and its flow with the last one.
func (q *Queue[flow]) remove(f flow, i int) {
	q.total--
	q.waiting[f] = slices.Delete(q.waiting[f], i, i+1)
	if len(q.waiting[f]) == 0 {
		delete(q.waiting, f)
		q.order = slices.DeleteFunc(q.order, func(other flow) bool { return other == f })
	}
}

func (q *Queue[flow]) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		q.free++
		return
	}
	f := q.order[0]
	q.order = append(q.order[1:], f)
	turn := q.waiting[f][0]
	q.remove(f, 0)
	close(turn)
}
