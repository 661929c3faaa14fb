package hubaccess

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// maxRemembered is how many answers are remembered, of some 65 bytes each, and
	// maxRememberedOfUser how many of those about one user: a user with a thousand tokens is a
	// thousand users to the hub, and must not take the room of the others.
	maxRemembered       = 1 << 19
	maxRememberedOfUser = maxRemembered / 8
	// rememberedAtLeast is what a list counts at least, for what it takes itself.
	rememberedAtLeast = 16
)

// decision is what the hub said of one name; never asked if asked is zero.
type decision struct {
	allowed bool
	asked   time.Duration // since the memory began
}

// memory remembers what the hub said of many names, so that a list which comes again, or
// goes on after a time-out, asks about few of them.
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

// rememberedList is what was said of one user and right.
type rememberedList struct {
	user   string
	used   time.Duration
	pruned time.Duration
	names  map[string]decision
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

// keep remembers what was said of names, but not what is older than what is known.
func (m *memory) keep(key [sha256.Size]byte, user string, names []string, said []decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.lists[key]
	if list == nil {
		list = &rememberedList{user: user, pruned: m.now(), names: map[string]decision{}}
		m.lists[key] = list
	}
	list.used = m.now()
	for i, name := range names {
		known, ok := list.names[name]
		if said[i].asked > known.asked && (ok || len(list.names) < m.limitOfUser) {
			list.names[name] = said[i]
		}
	}
	if list.used-list.pruned > maxDenialTTL {
		list.prune()
	}
	m.count(list)
	if list.used-m.swept > maxDenialTTL {
		m.sweep(list.used)
	}
	for m.all > m.limit || m.ofUser[user] > m.limitOfUser {
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

func (m *memory) count(list *rememberedList) {
	counts := max(len(list.names), rememberedAtLeast)
	m.all += counts - list.counts
	m.ofUser[list.user] += counts - list.counts
	list.counts = counts
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
