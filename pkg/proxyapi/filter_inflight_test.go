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
