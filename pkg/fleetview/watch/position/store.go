package position

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
	// TTL is how long a version can be resumed after it was given out.
	TTL = 5 * time.Minute
	// maxSize bounds the bytes of all that is kept, by an estimate. Above it,
	// positions are forgotten down to keptSize, because looking for them takes a while.
	maxSize    = 64 << 20
	keptSize   = maxSize / 8 * 7
	recordSize = 1 << 10
	memberSize = 100
	stepSize   = 40
)

// Store knows which version each member had at the versions that this process gave to
// clients, and other replicas that have ended, for 5 minutes and in at most about 64 MiB; of the
// owners who have most, the oldest are forgotten first. A running stream's own
// positions are a part of the stream, and not counted. The zero value is ready. Its methods are safe
// for concurrent use.
type Store struct {
	// Ask asks the other replicas for a version of an owner. It calls take with each answer,
	// which is what their Answer returned and may be empty, until take has enough, and reports
	// whether it has got all of them. It is nil if there are no other replicas, and set
	// before the first use.
	Ask func(ctx context.Context, v version.Version, owner string, take func(answer []byte) (enough bool)) (all bool)

	mu      sync.Mutex
	records []*Record // in the order of their beginning
	size    int
	// lost has the time of the newest version of a list that was forgotten for want of room, by
	// owner.
	lost map[string]int64
	// begun counts streams, and changes all changes of records.
	begun, changes uint64
}

// Record is the positions of one list or stream.
type Record struct {
	// owner is the user. Nobody else goes on from here, or adds to it.
	owner string
	// origin and number are the replica of a stream and which of its streams it is.
	origin uint32
	number uint64
	// base has the members' versions before the first step that is kept, by UID.
	base  map[string]uint64
	steps []Step
	// list is set for lists, which have one step.
	list *pages
	// live is set while the stream goes on; ended says when it, or the list, ended.
	live  bool
	ended time.Time
	size  int
	// changed is what Store.changes was at the record's newest change.
	changed uint64
}

// pages are those of a list that are known here. Another replica may have answered others.
type pages struct {
	seen map[int]bool
	// last is the number of the last page, or -1 if it is not known.
	last int
}

// lostPage is a page that no list has. A list that has lost pages has this one.
const lostPage = version.MaxPages

// known returns how much of the list is known. Pages that lack one before them are of a list of
// which something was lost, or which another replica knows.
func (p *pages) known() knowledge {
	n := 0
	for p.seen[n] {
		n++
	}
	switch {
	case p.last >= 0 && n > p.last:
		return complete
	case n > 0 && n == len(p.seen):
		return part
	}
	return unknown
}

// Step is one change of a position. A step without a UID changes nothing: its version is
// one that a client has. A step without a member's version forgets the member.
type Step struct {
	Time   int64
	Uid    string
	Member uint64
	// Replica is the one whose clock time is from.
	Replica uint32
	// Open says that the client had a part only of what some member has, so that its
	// watch cannot go on from here.
	Open bool
}

func (s Step) is(v version.Version) bool { return s.Time == v.Time && s.Replica == v.Replica }

// RecordPage records a page of an owner's list with this version when it is complete: which
// number it has, whether it is the last one, and which versions the members had that have a
// part in it, by UID.
func (p *Store) RecordPage(owner string, at version.Version, number int, last bool, versions map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.list(owner, at)
	for uid, v := range versions {
		// A page that repeats a cluster goes on at the version of the first page.
		if _, ok := r.base[uid]; !ok {
			r.base[uid] = version.OfMember(v)
			p.grow(r, memberSize)
		}
	}
	r.list.seen[number] = true
	if last {
		r.list.last = number
	}
	p.grow(r, 0)
	p.expire()
}

// list returns the record of an owner's list, which it makes if there is none. The caller holds mu.
func (p *Store) list(owner string, at version.Version) *Record {
	for _, r := range slices.Backward(p.records) {
		if r.list != nil && r.steps[0].is(at) && r.owner == owner {
			r.ended = time.Now()
			return r
		}
	}
	r := &Record{owner: owner, base: map[string]uint64{}, steps: []Step{{Time: at.Time, Replica: at.Replica}}, list: &pages{seen: map[int]bool{}, last: -1}, ended: time.Now()}
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
	// part is the position of a list of which the first pages are known, and which may have more.
	part
	complete
)

// lookup returns the members' versions at a version, as far as they are known here.
func (p *Store) lookup(v version.Version, owner string) (map[string]string, knowledge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, i := p.find(v, owner)
	switch {
	case r == nil:
		return nil, unknown
	case r.steps[i].Open:
		return nil, open
	}
	at := r.at(i)
	found := make(map[string]string, len(at))
	for uid, n := range at {
		found[uid] = strconv.FormatUint(n, 10)
	}
	if r.list != nil {
		return found, r.list.known()
	}
	return found, complete
}

// find returns a record of the owner and the index of its step with a version, if there is one. It
// prefers one of a stream, which has all of the position. The caller holds mu.
func (p *Store) find(v version.Version, owner string) (found *Record, at int) {
	p.expire()
	for _, r := range p.records {
		if r.owner != owner {
			continue
		}
		i := sort.Search(len(r.steps), func(i int) bool { return r.steps[i].Time >= v.Time })
		if i == len(r.steps) || !r.steps[i].is(v) {
			continue
		}
		if found, at = r, i; r.list == nil {
			break
		}
	}
	return found, at
}

// at returns the members' versions at a step.
func (r *Record) at(i int) map[string]uint64 {
	at := maps.Clone(r.base)
	for _, s := range r.steps[:i+1] {
		s.apply(at)
	}
	return at
}

// Begin returns the record of a stream of a replica that goes on from versions at a
// version of the view, which is zero if the stream begins anew.
func (p *Store) Begin(owner string, replica uint32, from version.Version, versions map[string]string) *Record {
	r := &Record{owner: owner, origin: replica, base: make(map[string]uint64, len(versions)), live: true}
	for uid, v := range versions {
		r.base[uid] = version.OfMember(v)
	}
	if from.Time != 0 {
		r.steps = append(r.steps, Step{Time: from.Time, Replica: from.Replica})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	r.number = p.begun
	p.records = append(p.records, r)
	p.grow(r, stepSize*len(r.steps))
	return r
}

// Step adds a change. The times of one record grow.
func (p *Store) Step(r *Record, s Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(r.steps) > 0 && r.steps[0].Time < s.Time-2*TTL.Microseconds() {
		p.fold(r, s.Time-TTL.Microseconds())
	}
	r.steps = append(r.steps, s)
	// A member says a new position as often as it likes, and nobody else may come.
	if p.grow(r, stepSize); p.size > maxSize {
		p.expire()
	}
}

// End says that a stream has ended.
func (p *Store) End(r *Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.live, r.ended = false, time.Now()
	r.size, p.size = r.size+r.own(), p.size+r.own() // no change of a position
	p.expire()
}

// own is how many bytes a record takes beside its steps.
func (r *Record) own() int { return recordSize + memberSize*len(r.base) }

// fold moves steps before a time into the base. It leaves the last one: a stream that is
// quiet for long is resumed from it.
func (p *Store) fold(r *Record, before int64) {
	n := sort.Search(len(r.steps)-1, func(i int) bool { return r.steps[i].Time >= before })
	for _, s := range r.steps[:n] {
		s.apply(r.base)
	}
	r.steps = slices.Clone(r.steps[n:])
	p.grow(r, -n*stepSize)
}

func (s Step) apply(at map[string]uint64) {
	switch {
	case s.Uid == "":
	case s.Member == 0:
		delete(at, s.Uid)
	default:
		at[s.Uid] = s.Member
	}
}

// grow notes a change of a record, and how many bytes more it takes. The caller holds mu.
func (p *Store) grow(r *Record, bytes int) {
	r.size += bytes
	p.size += bytes
	p.changes++
	r.changed = p.changes
}

// expire forgets what is too old, and what is too much. The caller holds mu.
func (p *Store) expire() {
	oldest := time.Now().Add(-TTL)
	p.keep(func(r *Record) bool { return r.live || !r.ended.Before(oldest) })
	maps.DeleteFunc(p.lost, func(_ string, at int64) bool { return at < oldest.UnixMicro() })
	if p.size <= maxSize {
		return
	}
	sizes := map[string]int{}
	for _, r := range p.records {
		sizes[r.owner] += r.size
	}
	share := share(sizes, keptSize)
	p.keep(func(r *Record) bool {
		if sizes[r.owner] <= share {
			return true
		}
		sizes[r.owner] -= r.size
		switch {
		case r.live: // it goes on; what cannot be resumed any more is listed again
			if len(r.steps) > 1 {
				p.fold(r, r.steps[len(r.steps)-1].Time)
			}
			sizes[r.owner] += r.size
			return true
		case r.list != nil:
			if p.lost == nil {
				p.lost = map[string]int64{}
			}
			p.lost[r.owner] = max(p.lost[r.owner], r.steps[0].Time)
		}
		return false
	})
}

// keep forgets the records that are not to be kept. It asks in their order.
func (p *Store) keep(is func(r *Record) bool) {
	kept := p.records[:0]
	for _, r := range p.records {
		if is(r) {
			kept = append(kept, r)
			continue
		}
		p.size -= r.size
	}
	clear(p.records[len(kept):])
	p.records = kept
}

// share returns how much each owner may have, of what they have, so that all together have no
// more than a limit: whoever has less keeps all.
func share(sizes map[string]int, limit int) int {
	owners := len(sizes)
	for _, size := range slices.Sorted(maps.Values(sizes)) {
		if size > limit/owners {
			return limit / owners
		}
		limit -= size
		owners--
	}
	return maxSize
}
