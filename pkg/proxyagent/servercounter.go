package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
)

const leaseResync = 30 * time.Second

// leaseCounter counts proxy servers by their Leases, as konnectivity's agent
// does with --count-server-leases. It is nil without that flag.
func (a *Agent) leaseCounter(serving context.Context) (agent.ServerCounter, error) {
	k := a.options.Konnectivity
	if !k.CountServerLeases {
		return nil, nil
	}
	config, err := flags.RESTConfig("kubeconfig", k.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	config.ContentType = k.APIContentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client to count proxy servers: %w", err)
	}
	selector, err := labels.Parse(k.LeaseLabel)
	if err != nil {
		return nil, fmt.Errorf("parsing --lease-label %q: %w", k.LeaseLabel, err)
	}
	informer := agent.NewLeaseInformerWithMetrics(client, k.LeaseNamespace, leaseResync)
	go informer.Run(serving.Done())
	if !cache.WaitForCacheSync(serving.Done(), informer.HasSynced) {
		return nil, errors.New("counting proxy servers by their Leases: stopped before the first list")
	}
	return agent.NewServerLeaseCounter(clock.RealClock{}, coordinationlisters.NewLeaseLister(informer.GetIndexer()), selector), nil
}

// counter counts the servers to have streams to: those that inner counts, and in place of
// each that drains, or can tell the agent nothing, one more. Konnectivity's agent asks before
// each dial, and its own pauses are all alike, so a thousand agents that lost a server
// would come back as one: the answer comes when the agent may dial.
func (s *servers) counter(inner agent.ServerCounter) agent.ServerCounter {
	return pacedCounter{inner: inner, servers: s}
}

type pacedCounter struct {
	inner   agent.ServerCounter
	servers *servers
}

// Count is part of agent.ServerCounter.
func (c pacedCounter) Count() int {
	for {
		count, wait, changed := c.servers.wanted(c.inner.Count())
		if wait <= 0 {
			return count
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
	}
}

// wanted is how many streams the agent should have if there are so many servers,
// and how long it should wait until it dials if it has less; changed is closed
// when that is another time.
func (s *servers) wanted(count int) (wanted int, wait time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if total := max(count, 1); total != s.total {
		s.total = total
		s.leaveServers() // it may be fewer than before
	}
	wanted = s.total
	for _, known := range s.sessions {
		if !known.stays() {
			wanted++
		}
	}
	switch {
	case s.stopped:
	case len(s.sessions) >= wanted:
		s.search.complete()
	default:
		s.tellSearch()
		wait = s.search.next(s.serving(), len(s.sessions) > 0)
	}
	return wanted, wait, s.changed
}
