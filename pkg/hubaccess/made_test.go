package hubaccess

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestMadeLists has more lists than there is room for, and lists that become old.
func TestMadeLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, names := newMadeLists(), namesUpTo(100)
		m.limit = 1000
		for i := range 50 {
			m.add(keyNumber(i), madeList{names: names, asked: time.Now()})
			if _, ok := m.get(keyNumber(i)); !ok || m.counts > 1000 || m.counts != 100*len(m.lists) {
				t.Fatalf("list %d is there: %t; %d names in %d lists, want 1000 at most", i, ok, m.counts, len(m.lists))
			}
		}
		time.Sleep(listTTL)
		if _, ok := m.get(keyNumber(49)); ok {
			t.Error("an old list is used")
		}
		m.add(keyNumber(100), madeList{asked: time.Now()})
		m.add(keyNumber(100), madeList{asked: time.Now()})
		m.add(keyNumber(101), madeList{names: namesUpTo(900), asked: time.Now()})
		m.add(keyNumber(102), madeList{names: names, asked: time.Now().Add(-listTTL)})
		if len(m.lists) != 2 || m.counts != 900+rememberedAtLeast {
			t.Errorf("%d lists with %d names, want the two that are not old", len(m.lists), m.counts)
		}
	})
}
