package proxyagent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// TestTransitions says for every state and event what comes next, and what the agent does then:
// it tells the server that it leaves, looks for another server, or forgets this one.
func TestTransitions(t *testing.T) {
	const (
		serving   = stateServing
		draining  = stateDraining
		leaving   = stateLeaving
		half      = stateHalfOpen
		halfDrain = stateHalfOpenDraining
		gone      = stateGone
	)
	type want [serverEvents]serverState
	tests := map[serverState]want{
		//          drains     renewed   missed     ended others     alone      spare
		serving:   {draining, serving, half, gone, serving, serving, serving},
		draining:  {draining, draining, halfDrain, gone, leaving, draining, draining},
		leaving:   {leaving, leaving, gone, gone, leaving, draining, leaving},
		half:      {halfDrain, serving, half, gone, half, half, gone},
		halfDrain: {halfDrain, draining, halfDrain, gone, gone, halfDrain, gone},
		gone:      {gone, gone, gone, gone, gone, gone, gone},
	}
	if len(tests) != serverStates {
		t.Fatalf("%d states are tested, want %d", len(tests), serverStates)
	}
	for before, test := range tests {
		for event, after := range test {
			t.Run(fmt.Sprint(before, ", event ", event), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newTestServers(t.Context(), func(int) time.Duration { return time.Second })
					defer s.close()
					said := make(chan carrier.Control, 10)
					k := addTestServer(s, "it", &fakeSession{said: said})
					if before == gone {
						delete(s.known, k.id)
					}
					k.state = before
					s.mu.Lock()
					news := s.changed
					s.applyLocked(k, serverEvent(event))
					s.mu.Unlock()
					synctest.Wait()
					got := []string{k.state.String()}
					if len(said) > 0 {
						got = append(got, "told")
					}
					select {
					case <-news:
						got = append(got, "news")
					default:
					}
					if s.known["it"] == nil {
						got = append(got, "forgotten")
					}
					want := []string{after.String()}
					switch {
					case after == gone && before == gone:
						want = append(want, "forgotten")
					case after == gone:
						want = append(want, "news", "forgotten")
					case after != before && after == leaving:
						want = append(want, "told")
					case after != before && (serverEvent(event) == eventDrains || serverEvent(event) == eventMissed):
						want = append(want, "news")
					}
					if strings.Join(got, ", ") != strings.Join(want, ", ") {
						t.Errorf("%q, want %q", got, want)
					}
				})
			})
		}
	}
}

// TestServersTheAgentLeaves settles what an agent has of two servers, when there are that many.
func TestServersTheAgentLeaves(t *testing.T) {
	for _, tc := range []struct {
		one, two         serverState
		total            int
		wantOne, wantTwo serverState
	}{
		{stateServing, stateServing, 2, stateServing, stateServing},
		{stateDraining, stateServing, 2, stateLeaving, stateServing},
		{stateDraining, stateDraining, 2, stateDraining, stateDraining},
		{stateDraining, stateHalfOpen, 2, stateDraining, stateHalfOpen},
		{stateLeaving, stateDraining, 2, stateDraining, stateDraining},
		{stateHalfOpen, stateServing, 2, stateHalfOpen, stateServing},
		{stateHalfOpen, stateServing, 1, stateGone, stateServing},
		{stateHalfOpenDraining, stateServing, 2, stateGone, stateServing},
		{stateHalfOpenDraining, stateHalfOpen, 2, stateHalfOpenDraining, stateHalfOpen},
	} {
		s := newTestServers(t.Context(), func(int) time.Duration { return time.Second })
		one, two := addTestServer(s, "one"), addTestServer(s, "two")
		one.state, two.state = tc.one, tc.two
		s.mu.Lock()
		s.search.total = tc.total
		s.settleLocked()
		s.mu.Unlock()
		if one.state != tc.wantOne || two.state != tc.wantTwo {
			t.Errorf("%s and %s of %d: %s and %s, want %s and %s", tc.one, tc.two, tc.total, one.state, two.state, tc.wantOne, tc.wantTwo)
		}
		s.close()
	}
}
