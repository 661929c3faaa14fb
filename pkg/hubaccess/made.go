package hubaccess

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxMade is how many names are in the lists that are used again, of 16 bytes each: the names
// themselves are those of the clusters. A list counts rememberedAtLeast at least.
const maxMade = 1 << 19

// madeList are names, and since when they are known: nothing that is allowed in it was asked
// before.
type madeList struct {
	names []string
	asked time.Time
}

func (m madeList) old() bool   { return time.Since(m.asked) >= listTTL }
func (m madeList) counts() int { return max(len(m.names), rememberedAtLeast) }

// madeLists are lists that can be used again: for seconds, so that it does not matter much which
// go if there are too many.
type madeLists struct {
	limit int

	mu     sync.Mutex
	lists  map[[sha256.Size]byte]madeList
	counts int
}

func newMadeLists() *madeLists {
	return &madeLists{limit: maxMade, lists: map[[sha256.Size]byte]madeList{}}
}

// get returns a list that is not old.
func (m *madeLists) get(key [sha256.Size]byte) (madeList, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made, ok := m.lists[key]
	if ok && made.old() {
		m.remove(key)
		return madeList{}, false
	}
	return made, ok
}

// add keeps a list, unless it is old already.
func (m *madeLists) add(key [sha256.Size]byte, made madeList) {
	if made.old() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(key)
	if m.counts+made.counts() > m.limit {
		for other, list := range m.lists {
			if list.old() {
				m.remove(other)
			}
		}
	}
	for other := range m.lists {
		if m.counts+made.counts() <= m.limit {
			break
		}
		m.remove(other)
	}
	m.lists[key] = made
	m.counts += made.counts()
}

func (m *madeLists) remove(key [sha256.Size]byte) {
	if made, ok := m.lists[key]; ok {
		m.counts -= made.counts()
		delete(m.lists, key)
	}
}
