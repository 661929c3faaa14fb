package proxyserver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
)

// balancedManager is konnectivity's destHost manager, except that it shares
// the load among the agents of a cluster, where the original always takes the
// one that came first.
type balancedManager struct {
	*server.DestHostBackendManager

	mu     sync.RWMutex
	groups map[string][]*server.Backend // by groupOf, in order of arrival
}

func newBalancedManager() *balancedManager {
	return &balancedManager{
		DestHostBackendManager: server.NewDestHostBackendManager(),
		groups:                 map[string][]*server.Backend{},
	}
}

func (m *balancedManager) AddBackend(backend *server.Backend) {
	m.DestHostBackendManager.AddBackend(backend)
	m.mu.Lock()
	defer m.mu.Unlock()
	key := groupOf(backend)
	m.groups[key] = append(m.groups[key], backend)
}

func (m *balancedManager) RemoveBackend(backend *server.Backend) {
	m.DestHostBackendManager.RemoveBackend(backend)
	m.mu.Lock()
	defer m.mu.Unlock()
	key := groupOf(backend)
	m.groups[key] = slices.DeleteFunc(m.groups[key], func(b *server.Backend) bool { return b == backend })
	if len(m.groups[key]) == 0 {
		delete(m.groups, key)
	}
}

// Backend takes the original's choice, which knows the host that is dialed,
// and replaces it by the least loaded agent that has the same hosts.
func (m *balancedManager) Backend(ctx context.Context) (*server.Backend, error) {
	first, err := m.DestHostBackendManager.Backend(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return leastLoaded(first, m.groups[groupOf(first)], time.Now()), nil
}

func leastLoaded(first *server.Backend, group []*server.Backend, now time.Time) *server.Backend {
	best, least := first, -1
	for _, candidate := range onePerAgent(group, now) {
		if candidate.IsDraining() && !first.IsDraining() {
			continue
		}
		if load := streamOf(candidate).load(); least < 0 || load < least {
			best, least = candidate, load
		}
	}
	return best
}

// onePerAgent keeps one stream of each agent: its newest stable one, since an
// agent has a second one for long only if it lost the first, or else its
// oldest.
func onePerAgent(group []*server.Backend, now time.Time) []*server.Backend {
	if len(group) < 2 {
		return group
	}
	chosen := make([]*server.Backend, 0, len(group))
	position := make(map[string]int, len(group))
	for _, candidate := range group {
		stream := streamOf(candidate)
		i, seen := position[stream.agentID]
		switch {
		case !seen:
			position[stream.agentID] = len(chosen)
			chosen = append(chosen, candidate)
		case now.Sub(stream.started) >= stableAfter:
			chosen[i] = candidate
		}
	}
	return chosen
}

func streamOf(backend *server.Backend) *agentStream {
	return backend.Context().Value(agentStreamKey{}).(*agentStream)
}

// groupOf is equal for agents that are interchangeable: same cluster, same
// hosts.
func groupOf(backend *server.Backend) string {
	hosts := slices.Clone(backend.GetAgentIdentifiers().Host)
	slices.Sort(hosts)
	return streamOf(backend).cluster + " " + strings.Join(hosts, " ")
}
