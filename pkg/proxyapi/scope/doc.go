// Package scope says what a request wants: Endpoints.NewScope reads its target, which package
// route takes apart, and its RequestInfo, as the managed kube-apiserver will. Nothing after it
// reads the URL again. It also has what every part of a request's way needs: what the hub
// knows of clusters and views, the limits that requests count for, and errors as a
// metav1.Status.
//
// A Scope belongs to the goroutine that serves the request. Its zero value, of kind None, is
// refused by every filter.
//
// # What one user may take
//
// Everyone who reaches the port can make it work on ClientHellos: package handshakes
// bounds how many are worked on at a time, and lets sources take turns.
//
// Numbers of requests and streams are bounded by user and by cluster (flags), and so is
// what may lie in memory because it is not read: 128 MiB for a user and 512 MiB for a
// cluster, in each direction. A request's body counts with its length, up to the 1 MiB
// that HTTP/2 takes before it is read; one too many is 429. An answer counts, with 1 MiB
// (a watch: 256 KiB), while its client has not read for a second. Clients that pause are
// waited for, but one pause too many is cut off (requests_rejected_total, reason unread). Headers
// of answers are 256 KiB at most, whatever they come by, and informational ones five: an
// agent is one cluster's, and may be anyone's.
//
// While most of a memory limit is used, requests are answered 503 (package memlimit),
// and what is open goes on.
//
// There is no limit of bytes per second. A slow reader or writer delays no one else,
// since every stream has its own window and every cluster several connections, and the
// network's share is what TCP gives each connection. A limit in the process would have
// to know the narrowest link on the way, which is a different one for each cluster; and
// what a user reads fast costs the managed kube-apiserver, whose own flow control knows
// the user. Bandwidth is best bounded where it is narrow: in the network.
//
// # Files
//
//	request.go  Endpoints.NewScope, and what is refused before it
//	karmada.go  requests for clusters and views in Karmada's API
//	target.go   requests for a cluster, a view, an agent
//	via.go      requests that come a second time
//	scope.go    Scope
//	limiter.go  counts by user and by cluster
//	status.go   what an error is as a metav1.Status
//	hub.go      what the hub knows of clusters and views
//	scheme.go   the kinds of the aggregated API
package scope
