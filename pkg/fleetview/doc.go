// Package fleetview serves many clusters as one Kubernetes API. It knows a cluster as a fleet.Member, to
// which it sends requests as the user who asks, and nothing of tunnels or of the hub.
//
// # A view grants nothing
//
// Each request is made on each member as the user, and a member's refusal is that member's: it is
// left out as one that does not answer. Which members a user may ask is decided before
// (fleet.View.Members). Lists, watches, discovery and a name without its cluster ask all of them, at most
// 64 at a time; NAME@CLUSTER and selectors choose. Members get the request's path and query without
// what is the view's in them, and no header of the client but Accept, and for writes Content-Type
// and User-Agent. Logs, exec, attach, port-forward, proxy and all upgrades go to View.Relay as they
// are, to the member that is found as for a write.
//
// # Writes
//
// A write, and a stream such as exec, is for one member. By default (WritesNamed) it must name it:
// in its path or selector, or by the object that it sends. Otherwise delete --all, scale -l and
// rollout restart, which list and then write each object by its name, would change every cluster by
// habit. A Scale's annotation does not count for the same reason. With WritesAny a name alone means
// the only member that has the object, if every member has answered and most of them have the
// resource. Refusals are 409 without the reason Conflict, which clients take for one to try again.
//
// # Views of a single cluster
//
// A view that names one cluster and selects by nothing else (View.Single) is not to be told from
// it: requests go to View.Relay byte for byte, discovery too, and objects and versions are the
// cluster's, because whoever points a program at it wants that cluster by another name. A view that
// happens to have one cluster is as every other: it would change its form when a second one joins.
// A resource that the rules leave out is refused before anything is sent. When such a view gets a second
// cluster, former versions are 410.
//
// # Versions
//
// An object's resourceVersion has the time at which the request for it began, a list's nothing but
// that time (package version): package watch keeps which version each member had then.
//
// # Where the rest is
//
// Package request reads what a request wants and of which members, package list answers lists,
// package watch watches, and package discovery what a view serves, as the union of what its members
// serve.
//
// # Files
//
//	serve.go    one request, by its verb
//	watch.go    watches, for package watch
//	review.go   reviews, of all members
//	health.go   how the view is
//	relay.go    requests that one member answers as they are; views of a single cluster
//	write.go    writes to one cluster
//	get.go      one object
//	find.go     the one member that has an object
//	answer.go   a member's answer with one object
//	handler.go  what is kept for all requests
package fleetview
