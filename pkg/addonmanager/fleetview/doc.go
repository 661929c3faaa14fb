// Package fleetview writes the status of FleetViews: how many clusters a view selects,
// which of them cannot be reached and since when, and whether the view asks for
// something that cannot be. The proxy API serves views without reading any of it; the
// status is for people. Which clusters a view selects is decided by package hubaccess/clusters,
// for the proxy API and here alike.
//
// A cluster counts if it is served: the hub accepts it, it has the addon, and neither
// is being deleted. It is reachable while its ManagedClusterAddOn is Available. The
// status does not say which of them a user may reach: that is another question for each
// user.
//
// # Work
//
// A hub has thousands of clusters and a few views. An event about a cluster, an addon
// or a ManagedClusterSet that changes nothing of the status is dropped (changes.go); any
// other asks for one round over all views, Interval later. A hundred events until then
// ask for the same round. An event therefore costs the same whatever the size of the
// fleet. A round reads caches only, and writes the views whose status differs from what it
// should be: conditions at once, numbers five times in a row and then once a minute. A view
// whose spec changes is looked at at once.
//
// # Files
//
//	reconciler.go  Reconciler: rounds, and writing a status
//	changes.go     which events ask for a round
//	status.go      the status of one view
package fleetview
