package proxyapi

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestOwnRequestsAreLimited has a user ask for the list of clusters more often at
// a time than allowed.
func TestOwnRequestsAreLimited(t *testing.T) {
	w := start(t, func(o *Options) { o.RequestsPerUser = 2 })
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * clusters *")
	holding, let := make(chan struct{}, 2), make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	t.Cleanup(release)
	var refused atomic.Int32
	w.api.Hold = func(review *authorizationv1.SubjectAccessReview) {
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
	ask := func(path string) {
		if resp, _ := get(t, client, w.url+path, header); resp.StatusCode == http.StatusTooManyRequests {
			refused.Add(1)
		}
	}
	var lists sync.WaitGroup
	for range 2 {
		lists.Go(func() { ask(strings.TrimSuffix(clustersPath, "/")) })
	}
	<-holding
	eventually(t, func() bool {
		ask(groupPath) // which may be before the second list; then that is refused
		return refused.Load() > 0
	})
	release()
	lists.Wait()
}
