package watch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// flood has an owner make lists of 1,000 clusters, more than there is room for.
func flood(p *Positions, clock *version.Clock, owner string) {
	versions := map[string]string{}
	for i := range 1000 {
		versions[fmt.Sprint("uid-", i)] = "1"
	}
	for range maxPositions/(memberSize*len(versions)) + 100 {
		p.RecordPage(owner, clock.Now(), 0, true, versions)
	}
}

// TestFloodOfPositions has one user make more lists than there is room for. The positions of
// others stay: those of a list, of a stream and of one that has ended.
func TestFloodOfPositions(t *testing.T) {
	var p Positions
	var clock version.Clock
	at := map[string]version.Version{"list": clock.Now(), "stream": clock.Now(), "ended": clock.Now(), "first of the flood": clock.Now()}
	uid := map[string]string{"uid": "100"}
	p.RecordPage("jane", at["list"], 0, true, uid)
	p.begin("jane", 0, at["stream"], uid)
	p.end(p.begin("jane", 0, at["ended"], uid))
	p.RecordPage("evil", at["first of the flood"], 0, true, uid)
	flood(&p, &clock, "evil")
	last := clock.Now()
	p.RecordPage("evil", last, 0, true, uid)
	for what, v := range at {
		owner, want := "jane", true
		if what == "first of the flood" {
			owner, want = "evil", false
		}
		if got, ok := p.Find(t.Context(), v, owner); ok != want || want && got["uid"] != "100" {
			t.Errorf("%s: got %v, %t, want %t", what, got, ok, want)
		}
	}
	if _, ok := p.Find(t.Context(), last, "evil"); !ok || p.size > maxPositions {
		t.Errorf("%d bytes are kept, of the newest of the flood %t, want %d at most and it", p.size, ok, maxPositions)
	}
	before := p.size
	flood(&p, &clock, "another")
	if _, ok := p.Find(t.Context(), at["list"], "jane"); !ok || p.size > maxPositions {
		t.Errorf("after a second flood %d bytes are kept after %d, and jane's list %t, want it", p.size, before, ok)
	}
}

// TestForgedVersion has a user write a continue token with the version of another's list, who
// has given it away.
func TestForgedVersion(t *testing.T) {
	var p, other Positions
	p.Ask = func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
		take(other.Answer(v, owner))
		return true
	}
	var clock version.Clock
	at := clock.Now()
	check := func(when string, from *Positions, owner, want string) {
		t.Helper()
		if got, _ := from.Find(t.Context(), at, owner); fmt.Sprint(got) != want {
			t.Errorf("%s, %s: got %v, want %s", when, owner, got, want)
		}
	}
	// The other replica gets evil's before it gets to know jane's.
	other.RecordPage("evil", at, 1, true, map[string]string{"uid": "999", "more": "1"})
	p.RecordPage("jane", at, 0, false, map[string]string{"uid": "100"})
	p.RecordPage("evil", at, 0, true, map[string]string{"uid": "1"})
	p.RecordPage("evil", at, 1, true, map[string]string{"uid": "1", "more": "1"})
	p.begin("evil", 0, at, map[string]string{"uid": "1"})
	check("when another has written it", &p, "jane", "map[uid:100]")
	p.RecordPage("jane", at, 1, true, map[string]string{"b": "7"})
	check("with her next page", &p, "jane", "map[b:7 uid:100]")
	transfer(t, &other, &p)
	transfer(t, &p, &other)
	check("handed over", &p, "jane", "map[b:7 uid:100]")
	check("handed over", &other, "jane", "map[b:7 uid:100]")
	check("handed over", &other, "joe", "map[]")
}

// TestPartOfAList has lists of which something was forgotten, or never known.
func TestPartOfAList(t *testing.T) {
	var clock version.Clock
	page := func(p *Positions, at version.Version, number int, last bool) {
		p.RecordPage("jane", at, number, last, map[string]string{fmt.Sprint("uid-", number): "100"})
	}
	for name, test := range map[string]struct {
		// here and there are the pages that two replicas answer. In between, one or both
		// forget what they know, for want of room.
		before, after     [2][]int
		forgets, complete bool
		want              bool
	}{
		"all":                            {[2][]int{{0, 1, 2}}, [2][]int{}, false, true, true},
		"the first ones":                 {[2][]int{{0, 1}}, [2][]int{}, false, false, true},
		"the first ones, on both":        {[2][]int{{0}, {1}}, [2][]int{}, false, false, true},
		"one is missing":                 {[2][]int{{0, 2}}, [2][]int{}, false, true, false},
		"the first is missing":           {[2][]int{{1, 2}}, [2][]int{}, false, true, false},
		"forgotten in the middle":        {[2][]int{{0}}, [2][]int{{1, 2}}, true, true, false},
		"the other has forgotten":        {[2][]int{nil, {1, 2}}, [2][]int{{0}}, true, true, false},
		"the other has forgotten others": {[2][]int{nil, {1}}, [2][]int{{0}, {2}}, true, true, false},
	} {
		var here, there Positions
		here.Ask = func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
			take(there.Answer(v, owner))
			return true
		}
		at := clock.Now()
		for i, p := range []*Positions{&here, &there} {
			for _, n := range test.before[i] {
				page(p, at, n, test.complete && n == 2)
			}
			if test.forgets && len(test.before[i]) > 0 {
				flood(p, &clock, "jane")
			}
			for _, n := range test.after[i] {
				page(p, at, n, test.complete && n == 2)
			}
		}
		if got, ok := here.Find(t.Context(), at, "jane"); ok != test.want {
			t.Errorf("%s: got %v, %t, want %t", name, got, ok, test.want)
		}
	}
}

// TestPositionsOfOneStreamAreBounded has a stream go on for minutes in which nobody else asks for
// anything, with a member that says a new position all the time.
func TestPositionsOfOneStreamAreBounded(t *testing.T) {
	var p Positions
	live := p.begin("jane", 0, version.Version{}, nil)
	now := time.Now().UnixMicro()
	const steps = maxPositions/stepSize + 2
	for i := range steps {
		p.step(live, step{time: now + int64(i), uid: "a", member: uint64(i + 1)})
	}
	if p.size > maxPositions || len(live.steps) == 0 || live.at(len(live.steps) - 1)["a"] != steps {
		t.Errorf("%d bytes are kept, want %d at most, and the newest position", p.size, maxPositions)
	}
}
