package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// TestListsAreOnePieceOfWork has a user with a right to few of many clusters
// list them over and over, and lose a right.
func TestListsAreOnePieceOfWork(t *testing.T) {
	const clusters = 300
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.Slow = 20 * time.Millisecond
		d.api.Allow("jane get clusters/proxy cluster-7", "jane get clusters/proxy cluster-9", "root get clusters/proxy *")
		names := func() (all []string) {
			for i := range clusters {
				all = append(all, fmt.Sprint("cluster-", i))
			}
			return all
		}
		list := func(name string) string {
			got, _, err := d.authorizer.Reachable(t.Context(), &user.DefaultInfo{Name: name}, []Right{{Verb: "get"}}, names())
			if err != nil {
				t.Error(err)
			}
			return strings.Join(got, " ")
		}
		for range 3 {
			var users sync.WaitGroup
			for range 50 {
				users.Go(func() {
					if got := list("jane"); got != "cluster-7 cluster-9" {
						t.Errorf("jane may reach %q, want cluster-7 and cluster-9", got)
					}
				})
			}
			users.Wait()
		}
		d.api.Lock()
		asked := len(d.api.Asked)
		d.api.Unlock()
		if most := d.api.Most.Load(); asked != clusters+1 || most > maxDecisions {
			t.Errorf("the hub was asked %d times for 150 lists, %d at a time; want %d, %d at a time", asked, most, clusters+1, maxDecisions)
		}
		var users sync.WaitGroup
		for i := range 20 {
			users.Go(func() { list(fmt.Sprint("user-", i)) })
		}
		users.Wait()
		if most := d.api.Most.Load(); most > maxDecisions {
			t.Errorf("%d questions at a time for 20 users, want %d at most", most, maxDecisions)
		}
		list("jane")
		d.api.Set(func(h *hubapi.Hub) { h.Rules = []string{"jane get clusters/proxy cluster-7"} })
		revoked := time.Now()
		for list("jane") != "cluster-7" {
			if time.Since(revoked) > decisionTTL {
				t.Fatal("a right that is gone is in a list after", time.Since(revoked))
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// TestListsOfAll has somebody who may reach all clusters cost one question, and
// a list that cannot be made be an error.
func TestListsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.Allow("root get clusters/proxy *")
		names := func() []string { return []string{"b", "a"} }
		got, _, err := d.authorizer.Reachable(t.Context(), &user.DefaultInfo{Name: "root"}, []Right{{Verb: "get"}}, names())
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" || err != nil || len(d.api.Asked) != 1 {
			t.Errorf("%v, asked %v (-want +got):\n%s", err, d.api.Asked, diff)
		}
		d.api.Set(func(h *hubapi.Hub) { h.Down = true })
		if got, _, err := d.authorizer.Reachable(t.Context(), &user.DefaultInfo{Name: "jane"}, []Right{{Verb: "get"}}, names()); err == nil {
			t.Errorf("with the hub down: %v, want an error", got)
		}
	})
}

// TestListsThatNobodyWaitsFor has a user begin lists and go away from each, as fast as that
// goes. Another user's list must not wait for the hub to answer what they take.
func TestListsThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 500, 0)
		f.limit(2, 7*time.Millisecond)
		for i := range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			began := make(chan error)
			go func() { _, _, err := f.reachAs(ctx, "eve", fmt.Sprint("verb-", i)); began <- err }()
			synctest.Wait()
			cancel()
			if err := <-began; !errors.Is(err, context.Canceled) {
				t.Errorf("list %d: %v, want %v", i, err, context.Canceled)
			}
		}
		synctest.Wait()
		began := time.Now()
		if _, _, err := f.reach(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("beside lists that nobody waits for another user's ended after %s: %v; want it after some 2 s", time.Since(began), err)
		}
	})
}

// TestUsersTakeTurns has a user wait for many lists at the same time. Another user's list takes
// little more than twice what it takes alone.
func TestUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 500, 0)
		f.limit(2, 7*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		var eve sync.WaitGroup
		for i := range 50 {
			eve.Go(func() { _, _, _ = f.reachAs(ctx, "eve", fmt.Sprint("verb-", i)) })
		}
		synctest.Wait()
		began := time.Now()
		if _, _, err := f.reach(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("beside 50 lists of another user one ended after %s: %v; want it after some 4 s", time.Since(began), err)
		}
		cancel()
		eve.Wait()
	})
}

// TestListWithOneWhoStays has one of two who wait for a list go away, and another come after all
// have gone.
func TestListWithOneWhoStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 100, 1)
		f.slow = time.Second
		reach := func(ctx context.Context) (answer chan string) {
			answer = make(chan string)
			go func() {
				names, _, err := f.reachAs(ctx, "jane", "get")
				answer <- fmt.Sprint(names, err)
			}()
			synctest.Wait()
			return answer
		}
		const want = "[cluster-0000] <nil>"
		ctx, cancel := context.WithCancel(t.Context())
		goes, stays := reach(ctx), reach(t.Context())
		cancel()
		<-goes
		if got := <-stays; got != want {
			t.Errorf("who stays has %s, want %s", got, want)
		}
		time.Sleep(2 * decisionTTL)
		ctx, cancel = context.WithCancel(t.Context())
		goes = reach(ctx)
		cancel()
		<-goes
		if got := <-reach(t.Context()); got != want {
			t.Errorf("who comes later has %s, want %s", got, want)
		}
	})
}

// TestListsThatBeginAgainAndAgain has a user begin a list and go away from it, over and over,
// while the hub works on its first questions. To go away from them does not take these back from
// the hub, so they keep their turns.
func TestListsThatBeginAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 500, 0)
		var sent atomic.Int64
		f.authorizer.lists = newLists(authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			sent.Add(1)
			select {
			case <-ctx.Done():
				return authorizer.DecisionNoOpinion, "", ctx.Err()
			case <-time.After(time.Second):
				return authorizer.DecisionNoOpinion, "", nil
			}
		}))
		for range 500 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _, _ = f.reachAs(ctx, "eve", "get")
			}()
			synctest.Wait()
			cancel()
			<-ended
		}
		if n := sent.Load(); n > maxDecisions {
			t.Errorf("%d questions are sent at a time, want %d at most", n, maxDecisions)
		}
	})
}
