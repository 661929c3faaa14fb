package position

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// flood has an owner make lists of 1,000 clusters, more than there is room for.
func flood(p *Store, clock *version.Clock, owner string) {
	versions := map[string]string{}
	for i := range 1000 {
		versions[fmt.Sprint("uid-", i)] = "1"
	}
	for range maxSize/(memberSize*len(versions)) + 100 {
		p.RecordPage(owner, clock.Now(), 0, true, versions)
	}
}

// TestFloodOfPositions has one user make more lists than there is room for. The positions of
// others stay: those of a list, of a stream and of one that has ended.
func TestFloodOfPositions(t *testing.T) {
	var p Store
	var clock version.Clock
	at := map[string]version.Version{"list": clock.Now(), "stream": clock.Now(), "ended": clock.Now(), "first of the flood": clock.Now()}
	uid := map[string]string{"uid": "100"}
	p.RecordPage("jane", at["list"], 0, true, uid)
	p.Begin("jane", 0, at["stream"], uid)
	p.End(p.Begin("jane", 0, at["ended"], uid))
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
	if _, ok := p.Find(t.Context(), last, "evil"); !ok || p.size > maxSize {
		t.Errorf("%d bytes are kept, of the newest of the flood %t, want %d at most and it", p.size, ok, maxSize)
	}
	before := p.size
	flood(&p, &clock, "another")
	if _, ok := p.Find(t.Context(), at["list"], "jane"); !ok || p.size > maxSize {
		t.Errorf("after a second flood %d bytes are kept after %d, and jane's list %t, want it", p.size, before, ok)
	}
}

// TestForgedVersion has a user write a continue token with the version of another's list, who
// has given it away.
func TestForgedVersion(t *testing.T) {
	var p, other Store
	p.Ask = func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
		take(other.Answer(v, owner))
		return true
	}
	var clock version.Clock
	at := clock.Now()
	check := func(when string, from *Store, owner, want string) {
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
	p.Begin("evil", 0, at, map[string]string{"uid": "1"})
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
	page := func(p *Store, at version.Version, number int, last bool) {
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
		var here, there Store
		here.Ask = func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
			take(there.Answer(v, owner))
			return true
		}
		at := clock.Now()
		for i, p := range []*Store{&here, &there} {
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
	var p Store
	live := p.Begin("jane", 0, version.Version{}, nil)
	now := time.Now().UnixMicro()
	const steps = maxSize/stepSize + 2
	for i := range steps {
		p.Step(live, Step{Time: now + int64(i), Uid: "a", Member: uint64(i + 1)})
	}
	if p.size > maxSize || len(live.steps) == 0 || live.at(len(live.steps) - 1)["a"] != steps {
		t.Errorf("%d bytes are kept, want %d at most, and the newest position", p.size, maxSize)
	}
}

func transfer(t *testing.T, from, to *Store) {
	t.Helper()
	messages, _ := from.Export(0)
	for message := range messages {
		if len(message) > MaxMessage {
			t.Errorf("a message has %d bytes, want %d at most", len(message), MaxMessage)
		}
		if err := to.Import(message); err != nil {
			t.Errorf("importing a message: %v", err)
		}
	}
}

// TestTransferOfMany hands over the positions of a busy stream of 500 clusters, in rounds.
func TestTransferOfMany(t *testing.T) {
	var from, to Store
	versions := map[string]string{}
	for i := range 500 {
		versions[fmt.Sprintf("01234567-89ab-cdef-0123-%012d", i)] = "100"
	}
	uids := slices.Sorted(func(yield func(string) bool) {
		for uid := range versions {
			if !yield(uid) {
				return
			}
		}
	})
	clock := version.Clock{Replica: 7}
	r := from.Begin("jane", 7, version.Version{}, versions)
	var at []version.Version
	since, sent := uint64(0), 0
	for i := range 3*partSteps + 5 {
		v := clock.Now()
		at = append(at, v)
		from.Step(r, Step{Time: v.Time, Replica: 7, Uid: uids[i%500], Member: uint64(101 + i)})
		if i%partSteps == partSteps/2 {
			messages, now := from.Export(since)
			for message := range messages {
				sent += len(message)
				if err := to.Import(bytes.Clone(message)); err != nil {
					t.Fatal(err)
				}
			}
			since = now
		}
	}
	from.End(r)
	transfer(t, &from, &to)
	messages, _ := from.Export(from.changes)
	for range messages {
		t.Error("got a message without changes, want none")
	}
	for _, i := range []int{0, 1, 499, 500, partSteps - 1, partSteps, 2*partSteps + 1, len(at) - 1} {
		want, known := from.lookup(at[i], "jane")
		got, imported := to.lookup(at[i], "jane")
		if known != complete || imported != complete || fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("step %d: got %v, %v, want %v, %v", i, imported, got, known, want)
		}
	}
	if to.size > 3*from.size {
		t.Errorf("got %d bytes in %d records, want about the %d bytes that were handed over", to.size, len(to.records), from.size)
	}
	t.Logf("%d bytes in memory, %d bytes sent in rounds", from.size, sent)
}

// TestReplicaLeavesWhileAsked has a replica hand over what it knows, and leave, between the
// look at what is known here and the question: it is asked no more.
func TestReplicaLeavesWhileAsked(t *testing.T) {
	from, clock := new(Store), new(version.Clock)
	v := clock.Now()
	from.RecordPage("jane", v, 0, true, map[string]string{"uid": "100"})
	p := new(Store)
	p.Ask = func(context.Context, version.Version, string, func([]byte) bool) bool {
		transfer(t, from, p)
		return true
	}
	if got, ok := p.Find(t.Context(), v, "jane"); !ok || got["uid"] != "100" {
		t.Errorf("got %v, %t, want what was handed over", got, ok)
	}
}

// TestBrokenAnswers has a replica that answers nonsense.
func TestBrokenAnswers(t *testing.T) {
	good, clock := new(Store), new(version.Clock)
	v := clock.Now()
	good.RecordPage("jane", v, 0, true, map[string]string{"uid": "100"})
	answer := good.Answer(v, "jane")
	for name, broken := range map[string][]byte{
		"text": []byte("no"), "cut": answer[:len(answer)-1], "more": append(bytes.Clone(answer), 0), "other format": append([]byte{messageFormat + 1}, answer[1:]...),
		"counts": append([]byte{messageFormat}, bytes.Repeat([]byte{0xff}, 9)...), "a UID without end": []byte(string([]byte{messageFormat, 1, 100}) + "abc"),
		"another version": func() []byte {
			other := clock.Now()
			good.RecordPage("jane", other, 0, true, map[string]string{"uid": "100"})
			return good.Answer(other, "jane")
		}(),
		"another owner": func() []byte {
			good.RecordPage("joe", v, 0, true, map[string]string{"uid": "7"})
			return good.Answer(v, "joe")
		}(),
	} {
		p := &Store{Ask: func(_ context.Context, _ version.Version, _ string, take func([]byte) bool) bool {
			take(broken)
			return true
		}}
		if got, ok := p.Find(t.Context(), v, "jane"); ok {
			t.Errorf("%s: got %v, want nothing", name, got)
		}
		if !strings.HasPrefix(name, "another ") && p.Import(broken) == nil {
			t.Errorf("%s: Import takes it, want an error", name)
		}
	}
}

func FuzzImport(f *testing.F) {
	clock := version.Clock{Replica: 3}
	var p Store
	list := clock.Now()
	p.RecordPage("jane", list, 2, true, map[string]string{"uid-a": "100"})
	r := p.Begin("jane", 3, list, map[string]string{"uid-a": "100", "uid-b": "7"})
	p.Step(r, Step{Time: clock.Next(), Replica: 3, Uid: "uid-b", Member: 8})
	p.Step(r, Step{Time: clock.Next(), Replica: 3, Uid: "uid-a", Open: true})
	messages, _ := p.Export(0)
	for message := range messages {
		f.Add(message)
	}
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x01", 100)))
	f.Fuzz(func(t *testing.T, message []byte) {
		var p Store
		if p.Import(message) != nil {
			if len(p.records) > 0 {
				t.Errorf("got %d records of a message that is broken, want none", len(p.records))
			}
			return
		}
		var again Store
		transfer(t, &p, &again)
		for _, r := range p.records {
			for _, s := range r.steps {
				v := version.Version{Time: s.Time, Replica: s.Replica}
				want, known := p.lookup(v, r.owner)
				got, imported := again.lookup(v, r.owner)
				if known != imported || len(want) != len(got) {
					t.Errorf("version %v: got %v, %v, want %v, %v", v, got, imported, want, known)
				}
			}
		}
	})
}
