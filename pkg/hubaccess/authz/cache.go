package authz

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// listTTL is how old the hub's word may be that a user may do something, in a list as
	// for a request.
	listTTL = decisionTTL
	// maxDenialTTL is how old its word that a user may not may be in a list of clusters. It
	// is listTTL for up to 500 of them, and for more what makes denialsPerSecond questions
	// of them.
	maxDenialTTL     = time.Minute
	denialsPerSecond = 100
	// maxRemembered is how many answers are remembered, of some 65 bytes each, and
	// maxRememberedOfUser how many of those about one user: a user with a thousand tokens is a
	// thousand users to the hub, and must not take the room of the others.
	maxRemembered       = 1 << 19
	maxRememberedOfUser = maxRemembered / 8
	// rememberedAtLeast is what a list counts at least, for what it takes itself, and
	// namesPerAnswer how many names of a list that was made count as one answer: they are
	// the clusters' own strings.
	rememberedAtLeast, namesPerAnswer = 16, 4
)

// madeList are names, and since when they are known: nothing that is allowed in it was asked
// before.
type madeList struct {
	names []string
	asked time.Time
}

func (m madeList) old() bool { return time.Since(m.asked) >= listTTL }

// decision is what the hub said of one name; never asked if asked is zero.
type decision struct {
	allowed bool
	asked   time.Duration // since the memory began
}

// memory remembers what the hub said of many names, so that a list which comes again, or
// goes on after a time-out, asks about few of them; and the lists themselves, so that one that
// comes again within seconds is not made again.
type memory struct {
	began time.Time
	// limit and limitOfUser are maxRemembered and maxRememberedOfUser.
	limit, limitOfUser int

	mu     sync.Mutex
	lists  map[[sha256.Size]byte]*rememberedList
	ofUser map[string]int // answers about each user
	all    int
	swept  time.Duration
}

// rememberedList is what was said of one user and right, or a list that was made.
type rememberedList struct {
	user   string
	used   time.Duration
	pruned time.Duration
	names  map[string]decision
	made   madeList
	counts int
}

func newMemory() *memory {
	return &memory{began: time.Now(), limit: maxRemembered, limitOfUser: maxRememberedOfUser, lists: map[[sha256.Size]byte]*rememberedList{}, ofUser: map[string]int{}}
}

// now is the time of a decision that is asked for now: never zero.
func (m *memory) now() time.Duration { return max(time.Since(m.began), 1) }

// of returns what was said of each of the names.
func (m *memory) of(key [sha256.Size]byte, names []string) []decision {
	said := make([]decision, len(names))
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.lists[key]
	if list == nil {
		return said
	}
	list.used = m.now()
	for i, name := range names {
		said[i] = list.names[name]
	}
	return said
}

// made returns a list that is not old.
func (m *memory) made(key [sha256.Size]byte) (madeList, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.lists[key]
	if list == nil || list.made.old() {
		return madeList{}, false
	}
	list.used = m.now()
	return list.made, true
}

// keepMade remembers a list, unless it is old already.
func (m *memory) keepMade(key [sha256.Size]byte, user string, made madeList) {
	if made.old() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.use(key, user)
	list.made = made
	m.settle(list)
}

// keep remembers what was said of names, but not what is older than what is known.
func (m *memory) keep(key [sha256.Size]byte, user string, names []string, said []decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.use(key, user)
	for i, name := range names {
		known, ok := list.names[name]
		if said[i].asked > known.asked && (ok || len(list.names) < m.limitOfUser) {
			list.names[name] = said[i]
		}
	}
	if list.used-list.pruned > maxDenialTTL {
		list.prune()
	}
	m.settle(list)
}

func (m *memory) use(key [sha256.Size]byte, user string) *rememberedList {
	list := m.lists[key]
	if list == nil {
		list = &rememberedList{user: user, pruned: m.now(), names: map[string]decision{}}
		m.lists[key] = list
	}
	list.used = m.now()
	return list
}

// settle counts a list that has changed, and makes room for it.
func (m *memory) settle(list *rememberedList) {
	if list.made.old() {
		list.made = madeList{}
	}
	counts := max(len(list.names)+len(list.made.names)/namesPerAnswer, rememberedAtLeast)
	m.all += counts - list.counts
	m.ofUser[list.user] += counts - list.counts
	list.counts = counts
	if list.used-m.swept > maxDenialTTL {
		m.sweep(list.used)
	}
	for m.all > m.limit || m.ofUser[list.user] > m.limitOfUser {
		if !m.evict(list) {
			break
		}
	}
}

// prune drops what is too old to be used: also clusters that are gone.
func (l *rememberedList) prune() {
	l.pruned = l.used
	for name, said := range l.names {
		if l.used-said.asked > maxDenialTTL {
			delete(l.names, name)
		}
	}
}

// evict forgets the list that was not used for longest: one of the same user if there is too
// much of that user. It reports false if there is no other list.
func (m *memory) evict(but *rememberedList) bool {
	var key [sha256.Size]byte
	var oldest *rememberedList
	tooMuch := m.ofUser[but.user] > m.limitOfUser
	for k, list := range m.lists {
		if list != but && (!tooMuch || list.user == but.user) && (oldest == nil || list.used < oldest.used) {
			key, oldest = k, list
		}
	}
	if oldest == nil {
		return false
	}
	m.forget(key, oldest)
	return true
}

func (m *memory) forget(key [sha256.Size]byte, list *rememberedList) {
	delete(m.lists, key)
	m.all -= list.counts
	if m.ofUser[list.user] -= list.counts; m.ofUser[list.user] == 0 {
		delete(m.ofUser, list.user)
	}
}

// sweep forgets the lists of users who have gone.
func (m *memory) sweep(now time.Duration) {
	m.swept = now
	for key, list := range m.lists {
		if now-list.used > maxDenialTTL {
			m.forget(key, list)
		}
	}
}

// decisionTTL is how long the hub's decisions are believed.
//
// A right that was taken away is gone after at most this time, and for open streams after
// this and --revalidate-streams together: within ten seconds.
const decisionTTL = 5 * time.Second
