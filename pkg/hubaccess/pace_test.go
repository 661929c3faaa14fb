package hubaccess

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ask asks n questions, and returns how long that took and how many were asked at a time.
func (p *pace) ask(t *testing.T, n int, work func()) (took time.Duration, most int64) {
	var asking, mostAsking atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range n {
		all.Go(func() {
			release, err := p.turn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			mostAsking.Store(max(mostAsking.Load(), asking.Add(1)))
			defer asking.Add(-1)
			began := time.Now()
			work()
			p.observe(time.Since(began), true)
		})
	}
	all.Wait()
	return time.Since(began), mostAsking.Load()
}

// TestPaceFollowsTheHub has a hub that is far away, and one with two processors.
func TestPaceFollowsTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, most := newPace().ask(t, 2000, func() { time.Sleep(20 * time.Millisecond) })
		if most != maxDecisions || took > time.Second {
			t.Errorf("a hub that is 20 ms away is asked %d questions at a time, 2,000 in %s; want %d, in less than 1 s", most, took, maxDecisions)
		}
		processors := make(chan struct{}, 2)
		took, most = newPace().ask(t, 2000, func() {
			processors <- struct{}{}
			defer func() { <-processors }()
			time.Sleep(4 * time.Millisecond)
		})
		if best := 4 * time.Second; most > 4*minDecisions || took > best+best/20 {
			t.Errorf("a hub with two processors is asked %d questions at a time, 2,000 in %s; want few, in %s", most, took, best)
		}
	})
}

// TestPaceOfABrokenHub has questions that are not answered, and a hub that becomes slow and
// fast again.
func TestPaceOfABrokenHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		slow := 5 * time.Millisecond
		work := func() { time.Sleep(slow) }
		p.ask(t, 1000, work)
		p.observe(time.Second, false)
		if p.limit != maxDecisions/2 {
			t.Errorf("after a failure the limit is %d, want %d", p.limit, maxDecisions/2)
		}
		slow *= 10
		p.ask(t, 1000, work)
		if p.limit != minDecisions {
			t.Errorf("at a hub that has become slow the limit is %d, want %d", p.limit, minDecisions)
		}
		time.Sleep(paceTTL)
		p.ask(t, 1000, work)
		if p.limit != maxDecisions {
			t.Errorf("at a hub that stays as slow the limit is %d, want %d", p.limit, maxDecisions)
		}
	})
}

// TestTurnsOfLists has waiting questions go away and lists take turns.
func TestTurnsOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		var releases []func()
		for range minDecisions {
			release, err := p.turn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		for range 10 {
			go func() {
				_, err := p.turn(ctx)
				gone <- err
			}()
		}
		synctest.Wait()
		var order []string
		for _, name := range []string{"a", "b", "c"} {
			go func() {
				release, err := p.turn(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				release()
			}()
			synctest.Wait()
		}
		cancel()
		for range 10 {
			if err := <-gone; err == nil {
				t.Error("a turn was given to a question that is gone")
			}
		}
		if len(order) > 0 {
			t.Errorf("%v had a turn beside %d others", order, minDecisions)
		}
		releases[0]()
		synctest.Wait()
		if len(order) != 3 || order[0] != "a" || order[2] != "c" {
			t.Errorf("turns were %v, want a, b, c", order)
		}
		for _, release := range releases[1:] {
			release()
		}
		if p.asking != 0 || p.waiting.Len() != 0 {
			t.Errorf("at the end %d questions are asked and %d wait", p.asking, p.waiting.Len())
		}
	})
}
