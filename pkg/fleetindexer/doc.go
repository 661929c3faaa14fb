// Package fleetindexer is the process fleet-index: it keeps one stream to the agent of each cluster, writes
// what comes to the store of package fleetindex, and answers the proxy API from there (package indexapi). It serves
// probes and metrics.
//
// # Data flow
//
//	agent ── stream of feed.Messages, through the tunnel ──▶ follower ──▶ fleetindex.Writer ──▶ store
//
// A follower claims its cluster, says what the store has (digests, and the items of small resources and of
// namespaces that differ), and applies what the agent sends. A stream that ends is followed by another one, after a
// pause up to a second that doubles up to a minute, unless the stream lasted a minute. The pause of a cluster that was away ends when
// its agent answers a question about rights. If the agent wants to be asked
// again, the namespaces that it names are told as items then.
//
//	proxy API ── TablesRequest, SearchRequest, CountRequest ──▶ answers ── what the caller may list ──▶ store
//	                                                              └── feed.Review, through the tunnel ──▶ agent
//
// An agent's heartbeat means that it has sent all that it knows. It counts when each resource has been said to
// be there, absent or incomplete on the same stream, and the message that says so of the last one counts as the first. The times are written together, every 10 s.
//
// # Who authenticates whom
//
// Connections are those of package agentclient, as in the proxy API: the agent is verified with the agent CA and
// the host name of its cluster, inside the tunnel, and must be that of the ManagedCluster that has the name now. The
// agent verifies our certificate, whose role is that of the fleet index: it gets rows and decisions and nothing
// else. Our requests for rows assert no user; reviews assert the one whom the proxy API names, and travel on the
// connection of the stream. On our port the role must be that of the proxy API, at each request. The proxy API says who
// the user is and which clusters the hub lets the user reach; a cluster that the hub does not serve, or has with another
// UID, is not answered for.
//
// # Rights
//
// The cluster decides what a user may list there: its agent asks its kube-apiserver as the user. A decision is used
// for 10 s from its question on. One question of a user to a cluster is under way at a time, for all that wait for it. An
// answer waits 3 s for a cluster, and the decision counts when it comes; a cluster that could not be asked is not asked again for
// 10 s. At most 1,000,000 decisions are remembered, some 60 MB; those on a question of a user that nobody has asked for the longest
// time go first.
//
// A cluster is away if a question to it found no agent within the last 10 s. While it is, the last
// decision that it gave stands for --stale-rights-seconds, and rows are said to be as of the time at which it was
// last heard. A refusal to decide (403: the owner's policy, or a user who may not ask) takes an earlier decision back; a
// failure does not.
//
// The store keeps what clusters allowed, for all replicas and after a restart: at most 1,000,000 decisions, the oldest go. It learns of them every
// 10 s, off the way of requests, and again after 5 minutes. The store loses what a cluster does not allow any more, if it may
// have it, before anybody is told; if that fails, the cluster counts as undecided. So a right that somebody was told to have
// lost does not come back, whatever fails. While a cluster is away, the store is read every 5 s, and nothing older than
// 30 s counts that is not in it.
//
// A search asks about all namespaces first, and where that is denied, about the namespaces that have hits: at most 50 of a
// cluster, and 500 questions in all that are new, or 5,000 if the query names the namespaces. Its answer says no more of that than
// rights do, and nothing of rows that the caller may not see; its time may depend on how many namespaces are asked about.
//
// # What is answered
//
// A table is answered for a cluster that has decided and whose rows are all there and were current in the last 30 s, or
// that is away. For any other one the answer says why not, and the proxy API asks the cluster. The tables of 200 clusters
// are made and sent before those of the next. Tables in memory have 512 MiB together; one that finds no room is not
// answered. A request has 4 MiB and 10,000 clusters, 64 are answered at a time, and an answer has a minute.
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
// unpacked, messages before they are parsed, rows and their number by the store, and 32 messages are unpacked at a
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
// An answer that fails after it has begun is cut off, so that it does not look whole. A token that is not of this request
// is 410: clients list again.
//
// At the end, probes say so, streams end, what was heard is written, and the Lease is deleted.
//
// # Files
//
//	indexer.go   the process
//	options.go   flags
//	replicas.go  which clusters are this replica's
//	port.go      the port for the proxy API: who may ask, bounds, errors
//	search.go    answers searches and counts
//	kinds.go     refuses searches for kinds that are not indexed
//	scopes.go    what the caller of a search may list
//	tables.go    answers lists
//	table.go     writes a Table as a kube-apiserver does
//	answers.go   what answers share: the clusters that a request is about
//	verdict.go   what is known of a right
//	rights.go    what callers may list: asks clusters
//	kept.go      decisions that the store keeps, of clusters that are away
//	sheets.go    decisions in memory
//	keeper.go    writes decisions to the store
//	fleet.go     followers of all clusters, removals, metrics of all
//	follower.go  one cluster: claims, streams, pauses
//	stream.go    one stream: what the store has, and what is applied
//	shared.go    what followers and answers share: the store, bounds, times
//	agents.go    opens a stream, and asks for decisions, through the tunnel
//	metrics.go   metrics
package fleetindexer
