// Package agents tests many proxy servers, agents and clients together, each the
// real thing, in one process: what a rollout, a crash, a storm of reconnects or
// a crowd of idle connections does to those who use the tunnel meanwhile.
//
// Clusters are called by loopback addresses: a plain agent dials what it is
// asked for, so a cluster's name leads to a target of its own, and a connection
// that ends up in another cluster is noticed by the history that both ends
// check (carriertest).
package agents
