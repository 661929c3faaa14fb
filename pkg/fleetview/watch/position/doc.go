// Package position knows for each version of a view of the last 5 minutes which
// resourceVersion each member had, which lets a client go on with its watch where it was, and
// at another replica of the proxy API.
//
// # Owners
//
// A position has an owner, the user whom it was given to, by name: the same one has other groups and
// extras after each renewal of a token. Nobody else goes on from it or adds to it. Otherwise whoever
// gets hold of a version could write a continue token with it, and change what is known of
// the other's list. So tokens need no signature: what users forge is theirs.
//
// Positions without room are forgotten, those of the users who have most first. A list is recorded page by
// page, when a page is complete. If some of its pages were forgotten, it is as one that is not known.
//
// # Other replicas
//
// A replica that does not know a version asks the others (Store.Ask), and one that is
// about to end exports what it knows and others import it. Exports have UIDs of
// members and their versions, never the keys of objects. A position is exact or 410. One
// that is older than what the client has would send it DELETED of objects that exist.
//
// Ways without other replicas were thought through. A version that has the position in
// itself would need the versions of all members: 5 KB in each of 500 clusters' objects. A
// position cannot be derived from the time in a version, because the client has what had
// arrived at the one stream at that time, which no other stream can tell. Sending clients
// back to the replica that they come from needs that replica. A store that all replicas
// write to would take each event's position before the event may be sent.
//
// So positions stay where they are made, which costs nothing while nobody comes back, and go
// over when they must: one question for each client that comes back to another replica, and
// in a drain about 10 bytes for each event of the last 5 minutes. A replica that is killed
// takes its positions with it; its clients list again.
//
// The pages of one list may be answered by several replicas, each of which knows a part. The
// parts are numbered by the continue token, and added together. They must be: behind a Service an
// informer's pages often go to two replicas, and if that were 410, its next list would be too. If a page
// may be known to a replica that does not answer, or was forgotten by one, that is 410: without it,
// the objects of its members that were deleted since would stay in the client.
//
// # Files
//
//	find.go      Store.Find: positions that this replica or another one knows
//	transfer.go  what goes over to other replicas: writing and reading it
//	store.go     Store: which version each member had at a version of the view
package position
