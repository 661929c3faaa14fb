// Package index is the agent's half of the fleet index: it sends the rows of the resources that the index
// wants, and then what changes, on one stream. Package fleetindex keeps them.
//
// The agent keeps no rows. While there is a stream, it has one watch for each resource, as Tables; without one,
// the index costs the cluster nothing. A stream begins with a list of each resource in pages, which the agent
// compares with what the index says that it has, and sends what differs (compare.go). After a break
// on either side the same happens again. A watch that the kube-apiserver ends goes on from its last version. If
// that is too old, the agent ends the stream with Again, and the index asks with what it has by then.
//
// # Rows
//
// Tables come with metadata alone; the node and the images are those of the columns. A Table of pods has no images,
// so pods come whole, and no more of them is read than their images. The column Age is left to the index, by the
// time of creation. Other cells with a time that is relative to now, such as "3 (5m ago)", are asked for again
// when they are older than a tenth of what they say, one at a time and at most five in a second
// (refresh.go). A row that was asked for is dropped if the watch has said something of the object meanwhile.
//
// Rows that package feed refuses are left out, and the resource is said to be incomplete.
//
// # Rights
//
// The agent reads with its own service account. A resource that it may not list is incomplete, with the
// kube-apiserver's reason; one that the cluster does not have is absent. Both are tried again every minute or
// so. Package apihandler lets only the fleet index ask, and only if the owner's policy allows it.
//
// # What fails how
//
// Errors of the kube-apiserver are tried again with growing pauses. Meanwhile the stream has no heartbeats, so that
// the index does not take its rows for those of the moment. A newer stream ends an older one: two replicas of the
// index never feed on one cluster for long, and the store is fenced.
//
// # Files
//
//	stream.go   the stream: its resources and heartbeats
//	follow.go   one resource: list, watch, attempts
//	refresh.go  cells with relative times
//	compare.go  what differs from what the index has
//	client.go   requests to the kube-apiserver
//	table.go    Tables and their rows
package index
