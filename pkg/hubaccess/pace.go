package hubaccess

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// minDecisions and maxDecisions bound how many questions about lists the hub is asked at a
	// time.
	minDecisions = 4
	maxDecisions = 64
	// leastLatency is what an answer takes at least: those that stand in take nothing.
	leastLatency = time.Millisecond
	// paceTTL is how long a latency is the one to compare with.
	paceTTL = 30 * time.Second
)

// pace is how many questions about lists the hub is asked at a time, of all users together.
// As many more as leave the hub's answers as fast as a few questions' are; then the questions
// would wait at the hub, where those about single requests wait with them. Turns are taken in
// the order in which they were asked for, so that lists that are made at a time share them.
type pace struct {
	mu      sync.Mutex
	limit   int
	asking  int
	waiting *list.List // of chan struct{}, closed when it is the turn of one

	// began is when least was set anew: the mean latency of the fastest round since.
	began time.Time
	least time.Duration
	// doubles says that the answers have not become slower yet.
	doubles bool
	// took adds up the latencies of this round of limit questions.
	took    time.Duration
	answers int
}

func newPace() *pace { return &pace{limit: minDecisions, waiting: list.New()} }

// turn waits until a question may be asked. release ends the turn, and is to be called once.
func (p *pace) turn(ctx context.Context) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart()
	if p.asking < p.limit && p.waiting.Len() == 0 {
		p.asking++
		return p.release, nil
	}
	mine := make(chan struct{})
	place := p.waiting.PushBack(mine)
	p.mu.Unlock()
	select {
	case <-mine:
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-mine:
		return p.release, nil
	default:
		p.waiting.Remove(place)
		return nil, ctx.Err()
	}
}

func (p *pace) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking--
	p.next()
}

// next gives turns to those who wait.
func (p *pace) next() {
	for p.asking < p.limit && p.waiting.Len() > 0 {
		p.asking++
		close(p.waiting.Remove(p.waiting.Front()).(chan struct{}))
	}
}

// restart looks for the latency to compare with again: the hub may be another one by now.
func (p *pace) restart() {
	if now := time.Now(); now.Sub(p.began) > paceTTL {
		p.began, p.least, p.limit, p.doubles, p.took, p.answers = now, 0, minDecisions, true, 0, 0
	}
}

// observe is told of each question whether it was answered, and what that took. It compares
// the mean latency of a round with that of the fastest one.
func (p *pace) observe(took time.Duration, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !answered {
		p.limit, p.doubles, p.took, p.answers = max(p.limit/2, minDecisions), false, 0, 0
		return
	}
	p.took += max(took, leastLatency)
	if p.answers++; p.answers < p.limit {
		return
	}
	mean := p.took / time.Duration(p.answers)
	p.took, p.answers = 0, 0
	if p.least == 0 || mean < p.least {
		p.least = mean
	}
	switch {
	case mean >= 3*p.least:
		p.limit, p.doubles = p.limit*3/4, false
	case mean >= 2*p.least:
		p.doubles = false
	case p.doubles:
		p.limit *= 2
	default:
		p.limit++
	}
	p.limit = min(max(p.limit, minDecisions), maxDecisions)
}
