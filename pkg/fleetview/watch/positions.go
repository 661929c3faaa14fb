package watch

import (
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
	recordSize   = 200
	memberSize   = 100
	stepSize     = 32
)

// Positions knows which version each member had at the versions that this process gave to
// clients, for 5 minutes and in at most about 64 MiB; the oldest are forgotten first. The
// zero value is ready. Its methods are safe for concurrent use.
type Positions struct {
	mu      sync.Mutex
	records []*record // in the order of their beginning
	size    int
}

// record is the positions of one list or stream.
type record struct {
	owner string
	// base has the members' versions before the first step that is kept, by UID.
	base  map[string]uint64
	steps []step
	// live is set while the stream goes on; ended says when it, or the list, ended.
	live  bool
	ended time.Time
	// objects is what the stream had shown at its last event, by the members' UIDs, once
	// it has ended.
	objects map[string]objects
	last    int64
	size    int
}

// step is one change of a position. A step without a UID changes nothing: its time is one
// that a client has. A step without a version forgets the member.
type step struct {
	time   int64
	uid    string
	member uint64
	// open says that the client had a part only of what some member has, so that its
	// watch cannot go on from here.
	open bool
}

// RecordList records that a list whose version has this time showed a member as of a
// version of the member's. The pages of a list may come one by one.
func (p *Positions) RecordList(at int64, memberUID, memberVersion string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	n := version.OfMember(memberVersion)
	for _, r := range slices.Backward(p.records) {
		if !r.live && len(r.steps) == 1 && r.steps[0].time == at {
			r.ended = time.Now()
			// A page that repeats a cluster goes on at the version of the first page.
			if _, ok := r.base[memberUID]; !ok {
				r.base[memberUID] = n
				p.grow(r, memberSize)
			}
			return
		}
	}
	r := &record{base: map[string]uint64{memberUID: n}, steps: []step{{time: at}}, ended: time.Now()}
	p.records = append(p.records, r)
	p.grow(r, recordSize+memberSize)
}

// Lookup returns the version of each member, by UID, at a version that a list or a stream
// of this process gave out. It reports false for a version that it does not know.
func (p *Positions) Lookup(v version.Version) (map[string]string, bool) {
	at, ok := p.lookup(v.Time, "")
	return at.versions, ok
}

// position is where a stream goes on.
type position struct {
	versions map[string]string
	// objects has the sets that were kept for the owner; nil if they are unknown.
	objects map[string]objects
}

func (p *Positions) lookup(t int64, owner string) (position, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	for _, r := range p.records {
		i := sort.Search(len(r.steps), func(i int) bool { return r.steps[i].time >= t })
		if i == len(r.steps) || r.steps[i].time != t {
			continue
		}
		if r.steps[i].open {
			return position{}, false
		}
		at := maps.Clone(r.base)
		for _, s := range r.steps[:i+1] {
			s.apply(at)
		}
		found := position{versions: make(map[string]string, len(at))}
		for uid, n := range at {
			found.versions[uid] = strconv.FormatUint(n, 10)
		}
		if owner != "" && owner == r.owner && r.objects != nil && t == r.last {
			found.objects = make(map[string]objects, len(r.objects))
			for uid, o := range r.objects {
				found.objects[uid] = maps.Clone(o)
			}
		}
		return found, true
	}
	return position{}, false
}

// begin returns the record of a stream that goes on from versions at a time; 0 if it begins
// anew.
func (p *Positions) begin(owner string, t int64, versions map[string]string) *record {
	r := &record{owner: owner, base: make(map[string]uint64, len(versions)), live: true}
	for uid, v := range versions {
		r.base[uid] = version.OfMember(v)
	}
	if t != 0 {
		r.steps = append(r.steps, step{time: t})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
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
	p.grow(r, stepSize)
}

// end says that a stream has ended, and what it had shown at its last event.
func (p *Positions) end(r *record, last int64, shown map[string]objects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.live, r.ended, r.last, r.objects = false, time.Now(), last, shown
	size := 0
	for _, o := range shown {
		size += o.size()
	}
	p.grow(r, size)
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

func (p *Positions) grow(r *record, bytes int) {
	r.size += bytes
	p.size += bytes
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
		if p.size <= maxPositions {
			return
		}
		// Streams go on; what cannot be resumed any more is listed again.
		if len(r.steps) > 1 {
			p.fold(r, r.steps[len(r.steps)-1].time)
		}
	}
}
