package proxyapi

import (
	"context"
	"errors"
	"slices"
	"sync"
)

const (
	// maxReviews is how many unverified credentials the hub is asked about at a
	// time.
	maxReviews = 32
	// maxWaiting is how many wait for that, of one flow and of all.
	maxWaitingOfFlow = 100
	maxWaiting       = 1000
)

var errTooManyWait = errors.New("too many requests wait for the hub")

// turns bounds how many do something at a time. Flows take turns, however many
// wait in each.
type turns struct {
	mu      sync.Mutex
	free    int
	order   []flow // those in which somebody waits; the first is next
	waiting map[flow][]chan struct{}
	total   int
}

func newTurns(n int) *turns { return &turns{free: n, waiting: map[flow][]chan struct{}{}} }

// take waits for a turn. The caller calls release once.
func (t *turns) take(ctx context.Context, f flow) (release func(), err error) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return t.release, nil
	}
	if t.total >= maxWaiting || len(t.waiting[f]) >= maxWaitingOfFlow {
		t.mu.Unlock()
		return nil, errTooManyWait
	}
	turn := make(chan struct{})
	if len(t.waiting[f]) == 0 {
		t.order = append(t.order, f)
	}
	t.waiting[f] = append(t.waiting[f], turn)
	t.total++
	t.mu.Unlock()
	select {
	case <-turn:
		return t.release, nil
	case <-ctx.Done():
	}
	if !t.leave(f, turn) {
		t.release() // the turn came at the same time
	}
	return nil, ctx.Err()
}

// leave reports whether somebody still waited.
func (t *turns) leave(f flow, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[f], turn)
	if i < 0 {
		return false
	}
	t.remove(f, i)
	return true
}

// remove takes one who waits away, and its flow with the last one.
func (t *turns) remove(f flow, i int) {
	t.total--
	t.waiting[f] = slices.Delete(t.waiting[f], i, i+1)
	if len(t.waiting[f]) == 0 {
		delete(t.waiting, f)
		t.order = slices.DeleteFunc(t.order, func(other flow) bool { return other == f })
	}
}

func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	f := t.order[0]
	t.order = append(t.order[1:], f)
	turn := t.waiting[f][0]
	t.remove(f, 0)
	close(turn)
}
