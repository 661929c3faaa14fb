package position

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// A message has names, which are owners and UIDs of members, and then records until its end.
// Numbers are uvarints, and names are numbers in their list.
const (
	// messageFormat is the first byte. Another layout takes another byte.
	messageFormat = 2
	// messageSize is how many bytes of records end a message, and partSteps how many steps
	// of a record one message has at most.
	messageSize = 256 << 10
	partSteps   = 4096
	// maxName bounds a name. The UID of a member has 36 characters, and an owner 64.
	maxName = 256
	// isList and isOpen are flags of records and steps.
	isList = 1
	isOpen = 1
)

// MaxMessage bounds the bytes of what Answer and Export return, for 10,000 members.
const MaxMessage = 4 << 20

// errMessage is the error of a message that is not one.
var errMessage = errors.New("the message is not one of a replica")

// Answer returns what is known here of the owner's position at a version, for the Import of
// another replica; nil if that is nothing. It says so if it may have been forgotten here.
func (p *Store) Answer(v version.Version, owner string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, i := p.find(v, owner)
	w := newMessage()
	switch {
	case r != nil:
		s := r.steps[i]
		s.Uid = ""
		w.record(&Record{owner: owner, origin: r.origin, number: r.number, base: r.at(i), steps: []Step{s}, list: r.list, live: r.live, ended: r.ended})
	case v.Time <= p.lost[owner]:
		w.record(&Record{owner: owner, steps: []Step{{Time: v.Time, Replica: v.Replica}}, list: &pages{seen: map[int]bool{lostPage: true}, last: -1}, ended: time.Now()})
	default:
		return nil
	}
	return w.bytes()
}

// Export returns messages with the records that have changed since an earlier Export, which
// returned the number since; 0 means all. Positions that are too old are left out.
func (p *Store) Export(since uint64) (messages iter.Seq[[]byte], now uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	var changed []*Record
	for _, r := range p.records {
		if r.changed > since {
			changed = append(changed, r)
		}
	}
	return func(yield func([]byte) bool) {
		w := newMessage()
		for _, r := range changed {
			for _, part := range p.parts(r) {
				w.record(part)
				if len(w.records) < messageSize {
					continue
				}
				if !yield(w.bytes()) {
					return
				}
				w = newMessage()
			}
		}
		if len(w.records) > 0 {
			yield(w.bytes())
		}
	}, p.changes
}

// parts returns copies of a record with some of its steps each.
func (p *Store) parts(r *Record) (parts []*Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := maps.Clone(r.base)
	for steps := range slices.Chunk(r.steps, partSteps) {
		part := &Record{owner: r.owner, origin: r.origin, number: r.number, base: maps.Clone(at), steps: slices.Clone(steps), live: r.live, ended: r.ended}
		if r.list != nil {
			part.list = &pages{maps.Clone(r.list.seen), r.list.last}
		}
		parts = append(parts, part)
		for _, s := range steps {
			s.apply(at)
		}
	}
	return parts
}

// Import adds what another replica knows. It adds nothing of a message that is not one.
func (p *Store) Import(message []byte) error {
	records, err := readMessage(message)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range records {
		if r.list != nil {
			p.importList(r)
		} else {
			p.importStream(r)
		}
	}
	p.expire()
	return nil
}

// importList adds the pages that another replica has answered. The caller holds mu.
func (p *Store) importList(from *Record) {
	at := version.Version{Time: from.steps[0].Time, Replica: from.steps[0].Replica}
	r := p.list(from.owner, at)
	before := len(r.list.seen)
	for uid, n := range from.base {
		if _, ok := r.base[uid]; !ok {
			p.grow(r, memberSize)
		}
		// A page that came twice came from the later one at last.
		r.base[uid] = max(n, r.base[uid])
	}
	maps.Copy(r.list.seen, from.list.seen)
	r.list.last = max(r.list.last, from.list.last)
	if len(r.list.seen) > before {
		p.grow(r, 0)
	}
}

// importStream adds a part of a stream's positions. The caller holds mu.
func (p *Store) importStream(r *Record) {
	first, last := r.steps[0].Time, r.steps[len(r.steps)-1].Time
	for i, known := range p.records {
		if known.list != nil || known.owner != r.owner || known.origin != r.origin || known.number != r.number || len(known.steps) == 0 {
			continue
		}
		switch from, to := known.steps[0].Time, known.steps[len(known.steps)-1].Time; {
		case known.live || from <= first && to >= last:
			return
		case from == first:
			p.size -= known.size
			p.records = slices.Delete(p.records, i, i+1)
			p.add(r)
			return
		}
	}
	p.add(r)
}

// add adds a record of another replica. The caller holds mu.
func (p *Store) add(r *Record) {
	p.records = append(p.records, r)
	p.grow(r, r.own()+stepSize*len(r.steps))
}

// message is one that is written.
type message struct {
	names   []string
	numbers map[string]uint64
	records []byte
}

func newMessage() *message { return &message{numbers: map[string]uint64{}} }

func (m *message) bytes() []byte {
	out := binary.AppendUvarint([]byte{messageFormat}, uint64(len(m.names)))
	for _, name := range m.names {
		out = append(binary.AppendUvarint(out, uint64(len(name))), name...)
	}
	return append(out, m.records...)
}

// name returns the number of a name in the message.
func (m *message) name(name string) uint64 {
	n, ok := m.numbers[name]
	if !ok {
		n = uint64(len(m.names))
		m.numbers[name], m.names = n, append(m.names, name)
	}
	return n
}

// record adds a record.
func (m *message) record(r *Record) {
	put := func(numbers ...uint64) {
		for _, n := range numbers {
			m.records = binary.AppendUvarint(m.records, n)
		}
	}
	age := time.Duration(0)
	if !r.live {
		age = max(0, time.Since(r.ended))
	}
	put(m.name(r.owner), uint64(age.Microseconds()))
	if r.list != nil {
		put(isList, uint64(r.list.last+1), uint64(len(r.list.seen)))
		for page := range r.list.seen {
			put(uint64(page))
		}
	} else {
		put(0, uint64(r.origin), r.number)
	}
	put(uint64(len(r.base)))
	for uid, n := range r.base {
		put(m.name(uid), n)
	}
	put(uint64(len(r.steps)))
	before := int64(0)
	for _, s := range r.steps {
		member, flags := uint64(0), uint64(0)
		if s.Uid != "" {
			member = m.name(s.Uid) + 1
		}
		if s.Open {
			flags = isOpen
		}
		put(uint64(s.Time-before), uint64(s.Replica), flags, member, s.Member)
		before = s.Time
	}
}

// readMessage reads the records of a message.
func readMessage(raw []byte) ([]*Record, error) {
	if len(raw) == 0 || raw[0] != messageFormat {
		return nil, errMessage
	}
	m := &messageReader{rest: raw[1:]}
	m.names = make([]string, m.count())
	for i := range m.names {
		n := m.number(min(maxName, uint64(len(m.rest))))
		if n > uint64(len(m.rest)) {
			return nil, errMessage
		}
		m.names[i], m.rest = string(m.rest[:n]), m.rest[n:]
	}
	var records []*Record
	for len(m.rest) > 0 && !m.broken {
		records = append(records, m.record(time.Now()))
	}
	if m.broken {
		return nil, fmt.Errorf("%w: record %d is broken", errMessage, len(records))
	}
	return records, nil
}

// messageReader reads the numbers of a message. After the first one that is broken it
// returns zero values.
type messageReader struct {
	names  []string
	rest   []byte
	broken bool
}

func (m *messageReader) number(limit uint64) uint64 {
	n, size := binary.Uvarint(m.rest)
	if m.broken || size <= 0 || n > limit {
		m.broken = true
		return 0
	}
	m.rest = m.rest[size:]
	return n
}

// count reads how many of something follow. Each takes a byte at least.
func (m *messageReader) count() int { return int(m.number(uint64(len(m.rest)))) }

// name reads a name.
func (m *messageReader) name() string {
	n := m.number(uint64(len(m.names)))
	if m.broken || n == uint64(len(m.names)) {
		m.broken = true
		return ""
	}
	return m.names[n]
}

func (m *messageReader) record(now time.Time) *Record {
	r := &Record{owner: m.name()}
	r.ended = now.Add(-time.Duration(m.number(uint64(TTL.Microseconds()*2))) * time.Microsecond)
	if m.number(isList) == isList {
		r.list = &pages{seen: map[int]bool{}, last: int(m.number(version.MaxPages+1)) - 1}
		for range m.count() {
			r.list.seen[int(m.number(version.MaxPages))] = true
		}
	} else {
		r.origin, r.number = uint32(m.number(version.Replicas-1)), m.number(1<<63)
	}
	members := m.count()
	r.base = make(map[string]uint64, min(members, len(m.names)))
	for range members {
		uid := m.name()
		r.base[uid] = m.number(version.MemberLimit - 1)
	}
	r.steps = m.steps(m.count())
	if len(r.steps) == 0 || r.list != nil && (len(r.steps) > 1 || r.steps[0].Uid != "") {
		m.broken = true
	}
	return r
}

func (m *messageReader) steps(n int) []Step {
	steps := make([]Step, 0, min(n, len(m.rest)/5))
	at := uint64(0)
	for range n {
		later := m.number(version.MaxTime)
		at += later
		s := Step{Time: int64(at), Replica: uint32(m.number(version.Replicas - 1)), Open: m.number(isOpen) == isOpen}
		member := m.number(uint64(len(m.names)))
		if s.Member = m.number(version.MemberLimit - 1); member > 0 {
			s.Uid = m.names[member-1]
		}
		if later == 0 || at > version.MaxTime {
			m.broken = true
		}
		if m.broken {
			return nil
		}
		steps = append(steps, s)
	}
	return steps
}
