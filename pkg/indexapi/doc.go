// Package indexapi is what the proxy API asks the fleet index, and what the fleet index answers: JSON over HTTP on a
// port of the index. Package fleetindexer serves it; the proxy API has a Client for it.
//
// # Who authenticates whom
//
// Both ends have a certificate of the hub's CA. The index is verified by the name identity.FleetIndexHost, which is in no
// DNS, and by its role; the caller by its role, which must be that of the proxy API, at each request. The index
// believes who the user of a request is, and which clusters the hub lets the user reach: the proxy API has asked the hub about
// each of them. The cluster decides what the user may list there, and the index asks it (Caller).
//
// # Tables
//
// Tables asks for one resource of many clusters and is answered with one Table of each, in the same order, as that
// cluster's kube-apiserver would write it. So a view merges tables of the index and of clusters as if
// they were of one kind. A cluster of which the index cannot answer is Unindexed: its kube-apiserver is asked.
//
// A request with a Continue that is not of this cluster, caller and list is refused as a whole with 410 Expired. A
// cluster that is Unindexed at a later page than the first has lost the list too: its kube-apiserver does not know the token.
//
// # Searches
//
// Search finds rows by words, and Count counts them. Clusters that could not decide what the user may see are
// counted in Undecided, and show nothing.
//
// # Files
//
//	client.go  Client, for the proxy API
//	search.go  searches and counts
//	tables.go  lists of one resource
package indexapi
