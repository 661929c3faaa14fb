// Package feed has what the agents of clusters and the fleet index have agreed on: rows, what
// they may be, and the digests by which both find out what differs.
//
// A row is what the index knows of one object: its metadata, as far as lists show and select by
// it, and the cells of its Table. It does not say of which cluster it is. That is known by the
// connection on which it comes, so no cluster can speak for another.
//
// # Bounds
//
// A row that Check refuses is in no store: it is longer than MaxRow, has more labels, images or cells
// than the index takes, or text with control characters or invalid UTF-8, which terminals and
// databases do not take. Check is pure, so that the agent leaves out the same rows as the index
// refuses, and counts them as incomplete.
//
// # Digests
//
// The digest of a namespace is the sum of its items' hashes, so it depends neither on an order nor on
// how it was reached. An item is a hash of an object's UID and one of its resourceVersion, twelve
// bytes in all. Where the digests of a namespace differ, the items say which objects are new,
// changed or gone. A hash is no proof: a cluster that makes two of its own objects collide has harmed
// its own rows.
//
// # Messages
//
// The index sends a Request with what it has, and the agent answers with a stream of Messages that ends only
// with the connection. Messages are JSON, each compressed by itself if it is large. A reader bounds a message before
// it unpacks it, and what it unpacks before it parses it.
//
// # Files
//
//	message.go  what index and agent say to each other
//	kinds.go    what resources are called
//	row.go      resources, their columns, rows and their bounds
//	digest.go   items and digests
package feed
