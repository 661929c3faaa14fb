// Package apirequest has the one reading of a request to a Kubernetes API: what it wants
// (Resolver), whether it leaves the API (LeavesAPI), whether it asks about its own user (IsSelfReview), and whether it changes
// nothing (IsDryRun). The proxy API asks the hub for rights
// by it, views refuse writes by it, and agents enforce the owner's policy by it. If two of them
// read a request differently, one of them would grant what another means to refuse.
//
// A request leaves the Kubernetes API when the API server does not answer it from objects but
// opens a way to something else: exec, attach and port-forward lead into a pod, proxy to a
// Service, pod or node, an upgrade to whatever takes the connection over, and CONNECT to the
// API server without a look at what goes over it. httprelay.IsUpgrade is the one reading of the
// Upgrade and Connection headers. test/rules finds other readings of either.
//
// # Files
//
//	apirequest.go  the resolver, what leaves the API, self reviews, dry runs
package apirequest
