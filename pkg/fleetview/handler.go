package fleetview

import (
	"math/rand/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/list"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// Handler serves views. Its methods are safe for concurrent use.
type Handler struct {
	clock     *version.Clock
	positions *position.Store
	discovery *discovery.Discovery
	// held counts what half-read answers of members take.
	held     *fleet.Memory
	draining <-chan struct{}
	lists    *list.Lister
}

// Options configure a Handler. The zero value is ready.
type Options struct {
	// Draining is closed when watches should go on elsewhere; nil never is.
	Draining <-chan struct{}
	// Positions are those of this replica, which may ask others; nil makes some.
	Positions *position.Store
}

// New makes a Handler. It does no I/O.
func New(o Options) *Handler {
	discovery := discovery.NewDiscovery()
	h := &Handler{clock: &version.Clock{Replica: rand.Uint32N(version.Replicas)}, positions: o.Positions, discovery: discovery, held: discovery.Held, draining: o.Draining}
	if h.positions == nil {
		h.positions = new(position.Store)
	}
	h.lists = list.New(h.clock, h.positions, h.held)
	return h
}
