// Package fleetindex keeps the rows of all clusters' objects in a store and answers lists, searches and
// counts from it. It knows neither HTTP nor tunnels nor OCM: a process gives it what agents send, and
// says for each question what the caller may list. Packages feed and query have rows and searches. Package
// fleetindexer writes to it, and asks it for the proxy API.
//
// # The store
//
// One implementation runs over database/sql with two engines: SQLite, a file of the process, and
// PostgreSQL, which replicas share. The schema is the same; dialect.go has what is not. Words are
// made by package query, and both engines take them as they come, so that a search finds the same in
// either: SQLite has them in an FTS5 table without content, PostgreSQL in a tsvector that is written out.
//
// The number of a row says where it is from: 11 bits of its resource, 20 of its cluster, 32 of its own. Rows of
// one feed, which is a resource of a cluster, are a range of numbers, and so are feeds of one resource. That
// replaces indexes by cluster and by kind, and lets a search by words read ranges of the full-text index.
//
// A namespace has a / behind it in the store, so rows of a feed are in the order of a kube-apiserver's keys, and so are
// lists, pages and tokens.
//
// Migration: meta has the version of the schema, to which each release appends statements. A store of a
// later release is not opened. SQLite does not wait for the disk at a commit: after a power failure
// the last changes are missing, and agents send them again.
//
// # Writers
//
// Claim makes its caller the one writer of a cluster and gives it a number, the epoch, that grows over all claims.
// Each transaction locks the cluster's row and fails with ErrFenced unless the epoch is still the writer's.
// A takeover waits for the transaction of the moment, and wins over all later ones. Locks are taken in
// one order, meta before cluster, so they never wait for each other in a circle.
//
// A cluster is a name and the UID of its ManagedCluster. A writer that claims the name with another UID
// begins without rows.
//
// Apply writes changes of one resource, all or none, with the resourceVersion that they lead to. Rows that
// package feed refuses, or that are beyond Options.MaxRows of the cluster, are left out; the feed says so in
// Incomplete until the next Define. Versions that decrease are taken as they come: after a restored backup
// they are right, and a cluster that lies does so about itself alone.
//
// After a break, Have says what the store has, for the agent to send what differs.
//
// # Decisions
//
// Clusters decide what callers may list, and cannot be asked while they are away. The store keeps what each allowed last, as the
// digest of who asks what: whoever reads the store can try out names, and does not read them. A cluster's name and UID are one digest
// too, so another cluster with the name has no decision.
//
// Keep may come late, and not at all: less is shown then. TakeBack must not: it is on the disk, also with SQLite, when it returns, and the store
// knows of it for a minute, longer than any Keep of what was allowed before is late (MaxDecisionAge). Of two answers that
// were asked for within ClockSkew the refusal counts, because the clocks of replicas may differ by that. A store that is
// put back from a copy has the decisions of then, which stand for as long as any.
//
// # Questions
//
// Rights are a function from cluster and resource to namespaces, and are asked before anything is read. The
// ranges of numbers that they allow are joined where they are neighbours, and each is read by a statement
// of its own. So nothing that is told, nor the time that it takes, depends on a feed that the caller may not
// read. Between namespaces of one feed only the time may differ, by rows that the engine passes over.
//
// A list needs the right to all that it asks for, as at a cluster: without a namespace that is all
// namespaces. A search finds rows in single namespaces as well.
//
// A list reads some clusters at a time, in the caller's order, and no more than maxPage rows. It
// has no transaction open while its caller sends them. It reads the feeds' versions first: rows are
// as new or newer, and a watch from that version misses nothing. Each cluster has pages of its own, which all
// have the version of the first.
//
// A search reads in the order of the store's numbers until it has enough, whatever the number of matches. Rows
// of one page are sorted for people. Terms that compare a whole text also ask for its words, if it
// has any, so that they need no scan. A query of patterns alone reads all rows that it could be about.
//
// Counts by cluster and kind need the words' table alone, those by status an index.
//
// Continue tokens are encrypted with a key of the store, because numbers of rows say how many there were. They are
// good for the same request of the same caller only. Rights are asked again for each page.
//
// # What fails how
//
// Errors of the engine are returned as they are. A writer whose call failed may go on, except after ErrFenced:
// what it knows of the feeds is what was committed. A commit whose outcome is not known, as when the
// connection to PostgreSQL ends, is the exception: claim the cluster again. A full store can be read.
//
// # Files
//
//	list.go       lists of one resource, by cluster
//	basis.go      what searches are about, and based on
//	count.go      counts
//	search.go     searches, and the ranges that rights leave
//	found.go      rows as they are read
//	resume.go     what a feed has: digests and items
//	apply.go      changes of rows
//	document.go   the words, the labels and the namespace of a row, as the engines take them
//	definition.go deletes definitions that no feed has
//	claim.go      writers: feeds, fencing
//	decision.go   what clusters decided about callers
//	store.go      the store
//	token.go      continue tokens
//	directory.go  clusters, and which of them have which feeds; numbers of rows
//	rights.go     what a caller may list
//	database.go   connections, reads, and migration of the schema
//	batch.go      writes that share a transaction
//	transaction.go transactions and their statements
//	dialect.go    what differs between the engines
//	schema.go     the schema
package fleetindex
