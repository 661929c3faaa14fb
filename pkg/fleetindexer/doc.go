// Package fleetindexer is the process fleet-index: it keeps one stream to the agent of each cluster and writes
// what comes to the store of package fleetindex. It serves probes and metrics. Answers to the proxy API are to
// come; they ask the same store, and need nothing of what is here.
//
// # Data flow
//
//	agent ── stream of feed.Messages, through the tunnel ──▶ follower ──▶ fleetindex.Writer ──▶ store
//
// A follower claims its cluster, says what the store has (digests, and the items of small resources and of
// namespaces that differ), and applies what the agent sends. A stream that ends is followed by another one, after a
// pause up to a second that doubles up to a minute, unless the stream lasted a minute. If the agent wants to be asked
// again, the namespaces that it names are told as items then.
//
// An agent's heartbeat means that it has sent all that it knows. It counts when each resource has been said to
// be there, absent or incomplete on the same stream. The times are written together, every 10 s.
//
// # Who authenticates whom
//
// Connections are those of package agentclient, as in the proxy API: the agent is verified with the agent CA and
// the host name of its cluster, inside the tunnel, and must be that of the ManagedCluster that has the name now. The
// agent verifies our certificate, whose role is that of the fleet index: it gets rows and decisions and nothing
// else. Our requests for rows assert no user.
//
// # Which clusters
//
// All that are served (package hubaccess/clusters). A cluster that is served no more, or is another one with the
// same name, ends within a second or two with its rows. Rows of clusters that went while the process was not
// running are found by comparing the store with the hub every 30 s. Nothing is removed before the hub has
// answered.
//
// With SQLite there is one replica. With PostgreSQL each replica has a Lease, which it renews every 5 s, and each
// cluster is that of the replica which has the highest hash with it (rendezvous hashing). A replica takes no
// cluster before the others have read its Lease; one that ends deletes it; one that was killed is gone for the
// others after 15 to 20 s. Two that hold the same cluster for a moment do no harm: the store is fenced, the agent
// ends the older stream. A replica that cannot renew its Lease, but reaches agents and the store, tries its
// clusters again with growing pauses, and loses them to the others meanwhile.
//
// # What a cluster can do to others
//
// A message does not say of which cluster it is; the follower's Writer does, so rows of others cannot be
// written. Its resources must be among those that were asked for. Frames are bounded before they are
// unpacked, messages before they are parsed, rows and their number by the store, and a few messages are unpacked at a
// time, none of them waiting for its agent. Of one cluster 4 MiB and 50 messages a second are taken, beyond a
// burst; the rest waits at the agent. A stream that is silent for 3 minutes ends. Versions that decrease are
// taken as they come: they concern the cluster's own rows. A definition of a resource may change a few times on one
// stream.
//
// # What fails how
//
// A cluster without an agent keeps its rows, and the time as of which they are. If the agent or the owner refuses (403, and 404 of an
// agent without an index), the rows are deleted. After an error of the store the cluster is claimed again, because the outcome
// is not known; errors are counted and logged. While the hub cannot be asked, clusters and replicas stay as they are.
//
// At the end, probes say so, streams end, what was heard is written, and the Lease is deleted.
//
// # Files
//
//	indexer.go   the process
//	options.go   flags
//	replicas.go  which clusters are this replica's
//	fleet.go     followers of all clusters, removals, metrics of all
//	follower.go  one cluster: claims, streams, pauses
//	stream.go    one stream: what the store has, and what is applied
//	shared.go    what followers share: the store, bounds, times
//	agents.go    opens a stream through the tunnel
//	metrics.go   metrics
package fleetindexer
