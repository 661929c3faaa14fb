package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// onlyLists makes a client one of before initial events: its informers list, and then watch.
func onlyLists(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("sendInitialEvents") {
				return nil, errors.New("this client does not ask for initial events")
			}
			return next.RoundTrip(r)
		})
	})
}

// anew is how often an informer has asked for all objects.
func (c *counted) anew() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds["list"] + c.kinds["watch-list"]
}

// TestFleetInformerWhileAClusterIsAway freezes the agents of a cluster and kills the replicas of the proxy
// API one after the other, so that informers must list again while the cluster is away, under writes
// on all clusters. None of them is told that an object is gone that is not, and at the end they hold
// what the clusters do. -count=10 repeats it in one lab. It disturbs all users of the proxy API.
func TestFleetInformerWhileAClusterIsAway(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	f := newFleet(t)
	const view = "e2e-away"
	// The informers wait for as long as this machine takes to kill all replicas.
	installed.MakeView(t, view, map[string]any{"names": "Qualified", "clusterTimeoutSeconds": int64(2), "informerTimeoutSeconds": int64(300)})
	installed.ScaleProxyAPI(t, 2)
	for _, cluster := range f.clusters {
		f.makeMaps(t, cluster, "keep-first")
	}
	type following struct {
		name     string
		asked    *counted
		informer cache.SharedIndexInformer
	}
	var followers []following
	var mu sync.Mutex
	wrong := map[string]bool{}
	for how, wrap := range map[string]func(*rest.Config){"initial events": func(*rest.Config) {}, "lists": onlyLists} {
		for _, endpoint := range installed.ViewEndpoints(view, installed.HubToken) {
			name := endpoint.Name + ", " + how
			wrap(endpoint.Cfg)
			asked := countRequests(endpoint.Cfg)
			followers = append(followers, following{name, asked, f.informer(t, endpoint.Cfg, func(key string) {
				if strings.Contains(key, "/keep-") {
					mu.Lock()
					wrong[name+" "+key] = true
					mu.Unlock()
				}
			})})
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer func() { stop(); writers.Wait() }()
	for cluster, cs := range f.on {
		writers.Go(func() {
			if _, err := f.write(ctx, cs, cluster); err != nil {
				t.Errorf("writing on %s: %v", cluster, err)
			}
		})
	}
	for _, follower := range followers {
		f.awaitWrites(t, follower.name+" before anything is killed", follower.informer)
	}
	before := map[string]int{}
	for _, follower := range followers {
		before[follower.name] = follower.asked.anew()
	}
	thaw := installed.FreezeAgents(t, f.clusters[len(f.clusters)-1])
	installed.KillProxyAPIInTurn(t)
	for _, follower := range followers {
		suite.Eventually(t, follower.name+" to ask again for all objects", func() error {
			if n := follower.asked.anew(); n <= before[follower.name] {
				return fmt.Errorf("it has asked %s", follower.asked)
			}
			return nil
		})
	}
	thaw()
	for _, follower := range followers {
		f.awaitWrites(t, follower.name+" at the end", follower.informer)
		t.Logf("%s: the informer has asked %s", follower.name, follower.asked)
	}
	stop()
	writers.Wait()
	for _, follower := range followers {
		f.awaitEqual(t, follower.informer)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(wrong) > 0 {
		t.Errorf("said to be deleted, and are not: %q", slices.Sorted(maps.Keys(wrong)))
	}
}
