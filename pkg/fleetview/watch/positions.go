package watch

import (
	"context"
	"maps"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

const (
	// keepPositions is how long a version can be resumed after it was given out.
	keepPositions = 5 * time.Minute
	// maxPositions bounds the bytes of all that is kept, by an estimate.
	maxPositions = 64 << 20
	// morePositions is how much comes before a stream looks whether that is passed, which it may
	// be by what cannot be forgotten.
	morePositions = maxPositions / 8
	recordSize    = 200
	memberSize    = 100
	stepSize      = 40
)

// Positions knows which version each member had at the versions that this process gave to
// clients, and other replicas that have ended, for 5 minutes and in at most about 64 MiB;
// the oldest are forgotten first. The zero value is ready. Its methods are safe for
// concurrent use.
type Positions struct {
	// Ask asks the other replicas for a version. It calls take with each answer, which is
	// what their Answer returned and may be empty, until take has enough, and reports
	// whether it has got all of them. It is nil if there are no other replicas, and set
	// before the first use.
	Ask func(ctx context.Context, v version.Version, take func(answer []byte) (enough bool)) (all bool)

	mu      sync.Mutex
	records []*record // in the order of their beginning
	size    int
	look    int // the size at which a stream looks whether that is too much
	// begun counts streams, and changes all changes of records.
	begun, changes uint64
}

// record is the positions of one list or stream.
type record struct {
	// origin and number are the replica of a stream and which of its streams it is.
	origin uint32
	number uint64
	// base has the members' versions before the first step that is kept, by UID.
	base  map[string]uint64
	steps []step
	// list is set for lists, which have one step.
	list *pages
	// live is set while the stream goes on; ended says when it, or the list, ended.
	live  bool
	ended time.Time
	size  int
	// changed is what Positions.changes was at the record's newest change.
	changed uint64
}

// pages are those of a list that are known here. Another replica may have answered others.
type pages struct {
	seen map[int]bool
	// last is the number of the last page, or -1 if it is not known.
	last int
}

// all reports whether all pages are known.
func (p *pages) all() bool { return p.last >= 0 && len(p.seen) > p.last }

// step is one change of a position. A step without a UID changes nothing: its version is
// one that a client has. A step without a member's version forgets the member.
type step struct {
	time   int64
	uid    string
	member uint64
	// replica is the one whose clock time is from.
	replica uint32
	// open says that the client had a part only of what some member has, so that its
	// watch cannot go on from here.
	open bool
}

func (s step) is(v version.Version) bool { return s.time == v.Time && s.replica == v.Replica }

// RecordList records that a list with this version showed a member as of a version of the
// member's. The pages of a list may come one by one.
func (p *Positions) RecordList(at version.Version, memberUID, memberVersion string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	r := p.list(at)
	// A page that repeats a cluster goes on at the version of the first page.
	if _, ok := r.base[memberUID]; !ok {
		r.base[memberUID] = version.OfMember(memberVersion)
		p.grow(r, memberSize)
	}
}

// RecordPage records that a page of a list is complete, and whether it is the last one.
func (p *Positions) RecordPage(at version.Version, number int, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	r := p.list(at)
	r.list.seen[number] = true
	if last {
		r.list.last = number
	}
	p.grow(r, 0)
}

// list returns the record of a list, which it makes if there is none. The caller holds mu.
func (p *Positions) list(at version.Version) *record {
	for _, r := range slices.Backward(p.records) {
		if r.list != nil && r.steps[0].is(at) {
			r.ended = time.Now()
			return r
		}
	}
	r := &record{base: map[string]uint64{}, steps: []step{{time: at.Time, replica: at.Replica}}, list: &pages{seen: map[int]bool{}, last: -1}, ended: time.Now()}
	p.records = append(p.records, r)
	p.grow(r, recordSize)
	return r
}

// knowledge is how much is known of a position.
type knowledge int

const (
	unknown knowledge = iota
	// open is a position of which it is known that no watch can go on from it.
	open
	// part is the position of a list that may have more pages than are known.
	part
	complete
)

// lookup returns the members' versions at a version, as far as they are known here.
func (p *Positions) lookup(v version.Version) (map[string]string, knowledge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, i := p.find(v)
	switch {
	case r == nil:
		return nil, unknown
	case r.steps[i].open:
		return nil, open
	}
	at := r.at(i)
	found := make(map[string]string, len(at))
	for uid, n := range at {
		found[uid] = strconv.FormatUint(n, 10)
	}
	if r.list != nil && !r.list.all() {
		return found, part
	}
	return found, complete
}

// find returns a record and the index of its step with a version, if there is one. The caller
// holds mu.
func (p *Positions) find(v version.Version) (*record, int) {
	p.expire()
	for _, r := range p.records {
		i := sort.Search(len(r.steps), func(i int) bool { return r.steps[i].time >= v.Time })
		if i < len(r.steps) && r.steps[i].is(v) {
			return r, i
		}
	}
	return nil, 0
}

// at returns the members' versions at a step.
func (r *record) at(i int) map[string]uint64 {
	at := maps.Clone(r.base)
	for _, s := range r.steps[:i+1] {
		s.apply(at)
	}
	return at
}

// begin returns the record of a stream of a replica that goes on from versions at a
// version of the view, which is zero if the stream begins anew.
func (p *Positions) begin(replica uint32, from version.Version, versions map[string]string) *record {
	r := &record{origin: replica, base: make(map[string]uint64, len(versions)), live: true}
	for uid, v := range versions {
		r.base[uid] = version.OfMember(v)
	}
	if from.Time != 0 {
		r.steps = append(r.steps, step{time: from.Time, replica: from.Replica})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	p.begun++
	r.number = p.begun
	p.records = append(p.records, r)
	p.grow(r, recordSize+memberSize*len(r.base))
	return r
}

// step adds a change. The times of one record grow.
func (p *Positions) step(r *record, s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(r.steps) > 0 && r.steps[0].time < s.time-2*keepPositions.Microseconds() {
		p.fold(r, s.time-keepPositions.Microseconds())
	}
	r.steps = append(r.steps, s)
	// A member says a new position as often as it likes, and nobody else may come.
	if p.grow(r, stepSize); p.size > p.look {
		p.expire()
	}
}

// end says that a stream has ended.
func (p *Positions) end(r *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.live, r.ended = false, time.Now()
	p.expire()
}

// fold moves steps before a time into the base. It leaves the last one: a stream that is
// quiet for long is resumed from it.
func (p *Positions) fold(r *record, before int64) {
	n := sort.Search(len(r.steps)-1, func(i int) bool { return r.steps[i].time >= before })
	for _, s := range r.steps[:n] {
		s.apply(r.base)
	}
	r.steps = slices.Clone(r.steps[n:])
	p.grow(r, -n*stepSize)
}

func (s step) apply(at map[string]uint64) {
	switch {
	case s.uid == "":
	case s.member == 0:
		delete(at, s.uid)
	default:
		at[s.uid] = s.member
	}
}

// grow notes a change of a record, and how many bytes more it takes. The caller holds mu.
func (p *Positions) grow(r *record, bytes int) {
	r.size += bytes
	p.size += bytes
	p.changes++
	r.changed = p.changes
}

// expire forgets what is too old, and the oldest while there is too much.
func (p *Positions) expire() {
	oldest := time.Now().Add(-keepPositions)
	kept := p.records[:0]
	for _, r := range p.records {
		if r.live || (!r.ended.Before(oldest) && p.size <= maxPositions) {
			kept = append(kept, r)
			continue
		}
		p.size -= r.size
	}
	clear(p.records[len(kept):])
	p.records = kept
	for _, r := range p.records {
		// Streams go on; what cannot be resumed any more is listed again.
		if p.size > maxPositions && len(r.steps) > 1 {
			p.fold(r, r.steps[len(r.steps)-1].time)
		}
	}
	p.look = max(p.size, maxPositions) + morePositions
}
