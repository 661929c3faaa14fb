package proxyapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
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
		lists.Go(func() { ask(strings.TrimSuffix(scope.ClustersPath, "/")) })
	}
	<-holding
	eventually(t, func() bool {
		ask(scope.GroupPath) // which may be before the second list; then that is refused
		return refused.Load() > 0
	})
	release()
	lists.Wait()
}

// TestLimitsOfAddresses has one who is unknown to the hub open streams from several addresses.
// Those of one IPv6 /64 are one sender's, who must not take what the cluster has for all.
func TestLimitsOfAddresses(t *testing.T) {
	for _, tc := range []struct {
		first, second string
		want          int
	}{
		{"[2001:db8::1]:1", "[2001:db8::1]:2", http.StatusTooManyRequests},
		{"[2001:db8::1]:1", "[2001:db8::ffff:2]:1", http.StatusTooManyRequests},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", http.StatusOK},
		{"192.0.2.1:1", "192.0.2.1:2", http.StatusTooManyRequests},
		{"192.0.2.1:1", "[::ffff:192.0.2.2]:1", http.StatusOK},
	} {
		f := &filter.Filters{Clusters: fakeClusters{"cluster1": {}}, Metrics: metrics.New(prometheus.NewRegistry()), AllowAnonymous: true,
			Requests: scope.NewLimiter("requests", 1, 100), Streams: scope.NewLimiter("streams", 1, 100), Uploads: scope.NewLimiter(scope.UnreadBytes, scope.UnreadPerUser, scope.UnreadPerCluster)}
		send := func(from string, while func()) int {
			r := httptest.NewRequest(http.MethodGet, "/cluster1/api/v1/pods?watch=1", nil)
			r.RemoteAddr = from
			rs := &scope.Scope{Kind: scope.Cluster, Target: route.Target{Cluster: "cluster1"}, PassThrough: true, Long: true}
			answer := httptest.NewRecorder()
			f.WithInflightLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { while() })).
				ServeHTTP(answer, r.WithContext(context.WithValue(request.WithUser(r.Context(), filter.Anonymous), scope.Key{}, rs)))
			return answer.Code
		}
		send(tc.first, func() {
			if got := send(tc.second, func() {}); got != tc.want {
				t.Errorf("a stream from %s beside the one that %s may have: %d, want %d", tc.second, tc.first, got, tc.want)
			}
		})
	}
}

// TestRefusalsNameTheLimit wants a 429 to say which limit it is, its value, and what raises it.
func TestRefusalsNameTheLimit(t *testing.T) {
	views := &scope.Limiter{What: "requests for fleet views", All: 2, PerUser: 1, InFlight: map[string]int{}, Raises: scope.Raises{All: "--all", PerUser: "--one"}}
	for name, test := range map[string]struct {
		limiter *scope.Limiter
		holds   []string // users
		user    string
		want    string
	}{
		"of a user":    {scope.NewLimiter("requests", 2, 10).RaisedBy(scope.ByValues("requests")), []string{"jane", "jane"}, "jane", `user "jane" has as many requests open as one user may have, 2: end some, or try again; an administrator of the hub raises the limit with the chart's value proxyAPI.limits.requestsPerUser`},
		"of a cluster": {scope.NewLimiter("streams", 10, 2).RaisedBy(scope.ByValues("streams")), []string{"jane", "ann"}, "eve", `cluster "c" has as many streams open as one cluster may have, 2: try again; an administrator of the hub raises the limit with the chart's value proxyAPI.limits.streamsPerCluster`},
		"of both":      {scope.NewLimiter("streams", 10, 10).WithPerPair(2).RaisedBy(scope.ByValues("streams")), []string{"jane", "ann", "jane"}, "jane", `user "jane" has at cluster "c" as many streams open as one user at one cluster may have, 2: end some, or try again; an administrator of the hub raises the limit with the chart's value proxyAPI.limits.streamsPerUserAndCluster`},
		"of all":       {views, []string{"jane", "ann"}, "eve", "all users together have as many requests for fleet views open as they may have, 2: try again; an administrator of the hub raises the limit with --all"},
		"of bytes":     {scope.NewLimiter(scope.UnreadBytes, 2, 10), []string{"jane", "jane"}, "jane", `user "jane" has as many unread bytes of bodies open as one user may have, 2: end some, or try again`},
	} {
		for _, user := range test.holds {
			if _, err := test.limiter.Acquire(user, "c", 1); err != nil {
				t.Fatal(err)
			}
		}
		_, err := test.limiter.Acquire(test.user, "c", 1)
		var refused *status.Error
		if !errors.As(err, &refused) || refused.ErrStatus.Code != http.StatusTooManyRequests || refused.ErrStatus.Message != test.want {
			t.Errorf("%s: %v, want 429 %q", name, err, test.want)
		}
	}
}

// TestADeadClusterCostsItself has cluster1 answer nothing, and Argo CD ask it again and again: its
// requests and watches for cluster2 go on.
func TestADeadClusterCostsItself(t *testing.T) {
	w := start(t, func(o *Options) {
		o.RequestsPerUser, o.RequestsPerPair, o.StreamsPerUser, o.StreamsPerPair = 4, 2, 4, 2
	})
	w.api.User("argocd", "argocd")
	w.api.Allow("argocd * clusters/proxy *")
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	holding := map[string]chan struct{}{"": make(chan struct{}, 2), "watch=1": make(chan struct{}, 2)}
	w.agent("cluster1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case holding[r.URL.RawQuery] <- struct{}{}:
			arrived <- struct{}{}
			<-release
		default: // it should not have come
		}
	}), "cluster1")
	w.agent("cluster2", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster2")
	client := w.client()
	header := http.Header{"Authorization": {"Bearer argocd"}}
	var waiting sync.WaitGroup
	for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=1"} {
		for range 2 {
			waiting.Go(func() { get(t, client, w.url+"/cluster1"+path, header) })
			<-arrived
		}
		if resp, body := get(t, client, w.url+"/cluster1"+path, header); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, `at cluster \"cluster1\"`) {
			t.Errorf("the third %s of the dead cluster: %d %s, want 429 that names the cluster", path, resp.StatusCode, body)
		}
		if resp, body := get(t, client, w.url+"/cluster2"+path, header); resp.StatusCode != http.StatusOK {
			t.Errorf("%s of the other cluster: %d %s, want 200", path, resp.StatusCode, body)
		}
	}
	close(release)
	waiting.Wait()
}

// TestAViewDoesNotRaiseTheLimitAtACluster has a user open watches of one cluster by its own URL, and
// by a view that relays them.
func TestAViewDoesNotRaiseTheLimitAtACluster(t *testing.T) {
	w := start(t, func(o *Options) { o.StreamsPerUser, o.StreamsPerPair = 10, 2 })
	w.api.User("jane", "jane")
	w.api.Allow("jane * clusters/proxy *", "jane get fleetviews *")
	watches, arrived, release := make(chan struct{}, 2), make(chan struct{}, 2), make(chan struct{})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		select {
		case watches <- struct{}{}:
			arrived <- struct{}{}
			<-release
		default: // it should not have come
		}
	}), "cluster1")
	w.addView("one", "cluster1")
	client := w.client()
	header := http.Header{"Authorization": {"Bearer jane"}}
	var waiting sync.WaitGroup
	for _, at := range []string{"/cluster1", "/@one"} {
		waiting.Go(func() { get(t, client, w.url+at+"/api/v1/pods?watch=1", header) })
		<-arrived
	}
	for _, at := range []string{"/cluster1", "/@one"} {
		if resp, body := get(t, client, w.url+at+"/api/v1/pods?watch=1", header); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, `user \"jane\" has at cluster \"cluster1\"`) {
			t.Errorf("a third watch by %s: %d %.200s, want 429 that names the cluster", at, resp.StatusCode, body)
		}
	}
	close(release)
	waiting.Wait()
}
