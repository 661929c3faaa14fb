package proxyapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestListsAreOnePieceOfWork has a user with a right to few of many clusters
// list them over and over, and lose a right.
func TestListsAreOnePieceOfWork(t *testing.T) {
	const clusters = 300
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.slow = 20 * time.Millisecond
		d.api.allow("jane get clusters/proxy cluster-7", "jane get clusters/proxy cluster-9", "root get clusters/proxy *")
		names := func() (all []string) {
			for i := range clusters {
				all = append(all, fmt.Sprint("cluster-", i))
			}
			return all
		}
		list := func(name string) string {
			got, err := d.lists.of(t.Context(), &user.DefaultInfo{Name: name}, names)
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
						t.Errorf("jane may reach %q", got)
					}
				})
			}
			users.Wait()
		}
		d.api.mu.Lock()
		asked := len(d.api.asked)
		d.api.mu.Unlock()
		if most := d.most.Load(); asked != clusters+1 || most > parallelDecisions {
			t.Errorf("the hub was asked %d times for 150 lists, %d at a time; want %d, %d at a time", asked, most, clusters+1, parallelDecisions)
		}
		var users sync.WaitGroup
		for i := range 20 {
			users.Go(func() { list(fmt.Sprint("user-", i)) })
		}
		users.Wait()
		if most := d.most.Load(); most > maxDecisions {
			t.Errorf("%d questions at a time for 20 users, want %d at most", most, maxDecisions)
		}
		list("jane")
		d.set(func(a *fakeHubAPI) { a.rules = []string{"jane get clusters/proxy cluster-7"} })
		revoked := time.Now()
		for list("jane") != "cluster-7" {
			if time.Since(revoked) > listTTL {
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
		d.api.allow("root get clusters/proxy *")
		names := func() []string { return []string{"b", "a"} }
		got, err := d.lists.of(t.Context(), &user.DefaultInfo{Name: "root"}, names)
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" || err != nil || len(d.api.asked) != 1 {
			t.Errorf("%v, asked %v (-want +got):\n%s", err, d.api.asked, diff)
		}
		d.set(func(a *fakeHubAPI) { a.down = true })
		if got, err := d.lists.of(t.Context(), &user.DefaultInfo{Name: "jane"}, names); err == nil {
			t.Errorf("with the hub down: %v", got)
		}
	})
}

// TestOwnRequestsAreLimited has a user ask for the list of clusters more often at
// a time than allowed.
func TestOwnRequestsAreLimited(t *testing.T) {
	w := start(t, func(o *Options) { o.RequestsPerUser = 2 })
	w.api.user("hub-token", "jane")
	w.api.allow("jane * clusters *")
	holding, let := make(chan struct{}, 2), make(chan struct{})
	var refused atomic.Int32
	w.api.hold = func(review *authorizationv1.SubjectAccessReview) {
		if review.Spec.ResourceAttributes != nil && review.Spec.ResourceAttributes.Subresource == "proxy" {
			select {
			case holding <- struct{}{}:
				<-let
			default:
			}
		}
	}
	client := w.client()
	header := http.Header{"Authorization": {"Bearer hub-token"}}
	var lists sync.WaitGroup
	for range 2 {
		lists.Go(func() { get(t, client, w.url+strings.TrimSuffix(clustersPath, "/"), header) })
	}
	<-holding
	eventually(t, func() bool {
		resp, _ := get(t, client, w.url+groupPath, header)
		if resp.StatusCode == http.StatusTooManyRequests {
			refused.Add(1)
		}
		return refused.Load() > 0
	})
	close(let)
	lists.Wait()
}
