package authz

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func keyNumber(i int) [sha256.Size]byte { return sha256.Sum256(fmt.Append(nil, i)) }

func namesUpTo(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("cluster-", i))
	}
	return names
}

// add remembers that names are denied now.
func (m *memory) add(key int, user string, names []string) {
	said := make([]decision, len(names))
	for i := range said {
		said[i].asked = m.now()
	}
	m.keep(keyNumber(key), user, names, said)
}

// knows counts the names of which something is known.
func (m *memory) knows(key int, names []string) (known int) {
	for _, said := range m.of(keyNumber(key), names) {
		if said.asked > 0 {
			known++
		}
	}
	return known
}

// TestMemoryOfOneUser has a user with ever new tokens, who takes no room of another's.
func TestMemoryOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, names := newMemory(), namesUpTo(100)
		m.limit, m.limitOfUser = 2000, 300
		m.add(0, "jane", names)
		for i := range 1000 {
			time.Sleep(10 * time.Millisecond)
			m.add(1+i, "eve", names)
			if m.ofUser["eve"] > 300 || m.all > 2000 {
				t.Fatalf("%d answers are remembered, %d of them about eve; want 2000 and 300 at most", m.all, m.ofUser["eve"])
			}
		}
		if jane, eve := m.knows(0, names), m.knows(1000, names); jane != 100 || eve != 100 {
			t.Errorf("of 100 clusters %d are remembered for jane, and %d for eve's last token; want all", jane, eve)
		}
		huge := namesUpTo(5000)
		m.add(2000, "eve", huge)
		if known := m.knows(2000, huge); known != 300 || m.ofUser["eve"] != 300 {
			t.Errorf("of a list of 5,000 clusters %d are remembered, %d counted; want 300", known, m.ofUser["eve"])
		}
	})
}

// TestMemoryOfManyUsers has the users who were there last remembered, and nothing of those
// who went away.
func TestMemoryOfManyUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, names := newMemory(), namesUpTo(100)
		m.limit = 2000
		for i := range 50 {
			time.Sleep(time.Millisecond)
			m.add(i, fmt.Sprint("user-", i), names)
		}
		if first, last := m.knows(0, names), m.knows(49, names); first != 0 || last != 100 || m.all != 2000 {
			t.Errorf("%d of the first user's clusters are remembered, %d of the last one's, %d in all; want 0, 100, 2000", first, last, m.all)
		}
		time.Sleep(maxDenialTTL + time.Second)
		m.add(100, "jane", names)
		if m.all != 100 || len(m.lists) != 1 || len(m.ofUser) != 1 {
			t.Errorf("a minute later %d answers in %d lists of %d users are remembered, want jane's 100", m.all, len(m.lists), len(m.ofUser))
		}
	})
}

// TestMemoryOfGoneClusters has all clusters of a list replaced by others.
func TestMemoryOfGoneClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.add(0, "jane", namesUpTo(100))
		time.Sleep(maxDenialTTL + time.Second)
		m.add(0, "jane", []string{"another"})
		if len(m.lists[keyNumber(0)].names) != 1 || m.all != rememberedAtLeast {
			t.Errorf("%d answers are remembered and %d counted, want 1 and %d", len(m.lists[keyNumber(0)].names), m.all, rememberedAtLeast)
		}
	})
}

// TestMemoryKeepsTheLatest has an older answer come later.
func TestMemoryKeepsTheLatest(t *testing.T) {
	m, name := newMemory(), []string{"a"}
	m.keep(keyNumber(0), "jane", name, []decision{{allowed: false, asked: 5}})
	m.keep(keyNumber(0), "jane", name, []decision{{allowed: true, asked: 4}})
	m.keep(keyNumber(0), "jane", name, []decision{{}})
	if said := m.of(keyNumber(0), name)[0]; said.allowed || said.asked != 5 {
		t.Errorf("remembered %+v, want the denial", said)
	}
}

// TestMadeLists has a user with more lists than there is room for, beside another one, and
// lists that become old.
func TestMadeLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, names := newMemory(), namesUpTo(100)
		m.limit, m.limitOfUser = 2000, 1000
		m.keepMade(keyNumber(0), "jane", madeList{names: names, asked: time.Now()})
		for i := range 200 {
			m.keepMade(keyNumber(1+i), "eve", madeList{names: names, asked: time.Now()})
			if _, ok := m.made(keyNumber(1 + i)); !ok || m.ofUser["eve"] > 1000 || m.all != m.ofUser["eve"]+m.ofUser["jane"] {
				t.Fatalf("list %d is there: %t; %d answers are remembered, %d of them about eve; want 1000 at most", i, ok, m.all, m.ofUser["eve"])
			}
		}
		if _, ok := m.made(keyNumber(0)); !ok {
			t.Error("jane's list was forgotten for eve's")
		}
		time.Sleep(listTTL)
		if _, ok := m.made(keyNumber(200)); ok {
			t.Error("an old list is used")
		}
		m.keepMade(keyNumber(300), "joe", madeList{names: names, asked: time.Now().Add(-listTTL)})
		if m.ofUser["joe"] != 0 {
			t.Error("a list is kept that was old when it was made")
		}
		m.add(0, "jane", names)
		if m.ofUser["jane"] != 100 {
			t.Errorf("%d answers about jane are counted, want 100 without the old list", m.ofUser["jane"])
		}
		time.Sleep(maxDenialTTL + time.Second)
		m.keepMade(keyNumber(301), "joe", madeList{asked: time.Now()})
		if m.all != rememberedAtLeast || len(m.lists) != 1 {
			t.Errorf("a minute later %d answers in %d lists are remembered, want joe's", m.all, len(m.lists))
		}
	})
}
