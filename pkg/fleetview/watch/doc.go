// Package watch makes one watch of many clusters. It knows a cluster as a Member, which
// answers requests, and speaks to it as any client of Kubernetes does.
//
// # Data flow
//
// Each member has one goroutine, which lists the member if it must, watches it from there,
// and writes events to the queue of the stream. The client's goroutine takes the queue out,
// all of it at once, so it flushes when no other event waits. A writer to the queue
// holds the stream: it stamps the event with the clock, has merge.Rewriter turn the
// object into one of the view, and notes the position, in one step. So versions grow
// strictly in a stream, and a position belongs to each of them.
//
// # Members
//
// A member without a position is listed, in pages, and then watched from the version of
// the list. A client that asks for initial events gets them as members send them: each
// is asked for its own (initial.go). It is listed instead, from where it is, if it refuses
// that, or ends or is silent without the bookmark behind them. After a 410 the
// member is listed, and the difference is sent as events. Members' own bookmarks move their positions and are not passed on.
//
// The client's initial bookmark follows when each member has sent all objects. A client that
// has objects already takes those for deleted that are not before it. The bookmark waits
// for members that fail, for Options.InformerTimeout, and for those that go on sending for 5 minutes. A
// refusal is an answer; one of rights is believed after 5 s. Meanwhile a bookmark comes every
// 15 s, for what is between the client and the view. Each bookmark names the members of
// which the client lacks objects (AnnotationMissing), and when one of them has sent its own, another
// bookmark follows at once. That is so in a stream that goes on from a version too. With
// FailWhenUnreachable the stream ends with an error in place of a bookmark that would name some.
//
// No request for initial events is 410: all that there is now is not older than any version, and
// client-go may list without a version after that, which is what people do (package fleetview).
//
// A member that fails keeps its objects in the client. It is asked again from its own last
// version, after pauses of 200 ms to 10 s with full jitter, or of 30 s after a refusal. The
// first refusals after a watch that went well have pauses from 1 s on, which double: a
// kube-apiserver that has just started refuses everybody. One that answers 410 is listed,
// and the difference goes to the client as events. A cluster that joins is listed too; for
// one that leaves, the client gets DELETED for its objects, with the metadata that the
// stream has kept. A cluster of the same name with another UID is one that leaves and one
// that joins.
//
// All that needs to know which objects the client has. A stream knows those that it has sent:
// all of a member that it has listed, or whose initial events it has sent. It does not know
// what the client has from a list or from an earlier stream, and goes on all the same, because most
// streams end without having to know. If such a member answers 410 or leaves the view, the stream
// ends with 410 and the client lists again; nobody can miss a deletion then. The former way, to list
// the metadata of all members for each stream that goes on, cost most of what going on saves.
//
// Members are not trusted: an event or an object larger than 16 MiB, or one that is
// malformed or of another kind than the others', ends that member's request and nothing
// else. The objects of a stream are what most members say theirs are. A kind that is not
// called like its resource, as that of a few custom resources, waits until each member
// has said its own or has failed, for 30 s at most: else a member could decide it by being
// the first.
//
// # Positions
//
// Positions knows for each version of the last 5 minutes which version each member had,
// so a client goes on where it was. A watch that cannot be resumed is 410, before the
// stream begins, or as an ERROR event. While a member's list is being sent the client has a part of its
// objects only, and cannot tell which; versions from that time are not resumed. That begins
// with the first event of the list: a member that does not answer is no reason for 410.
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
// A replica that does not know a version asks the others (Positions.Ask), and one that is
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
// Versions of one stream grow over all replicas: a replica stamps later than any version
// that it goes on from, however far that is ahead of its clock, if a replica has issued it.
//
// # Slow clients
//
// The queue has 1 MiB, or one event if that is larger. While it is full, members wait,
// as they would without a view. A client that does not take 64 KiB in 10 s is left:
// its stream ends, and it goes on from the last version that it has got.
//
// # Forms
//
// A form is how objects are written: whole or their metadata, in JSON or protobuf, or as
// Tables. Members are asked for the client's form, because a stream does not know what
// objects mean. If one of them answers 406, the client gets its next form: custom resources
// have no protobuf.
//
// Each event of a Table has one row, and the view's version. Its columns are those of all
// members that have said theirs, behind the cluster's. They are in the first event, and in
// each that follows a new one. Members are asked for the rows' objects even if the client
// does not want them: they say which object a row is about. The row of an object whose
// cluster is gone has the cluster and the name only.
//
// # Beginning and end
//
// The answer begins when each member's watch has begun, or 500 objects of it are there,
// and waits for the members' timeout at most. Clusters without a part in it are named in
// Warnings. If no cluster has one, the client gets 503 if some did not answer, and their
// refusal otherwise; so it does, as an ERROR event, if all refuse later. A client that goes
// on from a version gets a stream though nobody answers: it has objects already.
//
// With sendInitialEvents=false and no version, each member is asked for its version, and the
// stream goes on from there. A member that does not answer then is as one that joins when it does.
//
// A stream remembers the keys of the objects that it knows the client to have, of 500,000 at most.
// With more it ends with 410, which says so.
//
// # Files
//
//	options.go       Options: what one watch is about; limits
//	serve.go         Serve: what a stream goes on from, and its answer
//	beginning.go     what is awaited before the answer begins: warnings, refusals
//	awaited.go       what the initial bookmark waits for, and what bookmarks say is missing
//	stream.go        stream: the queue, stamps, bookmarks, writing to the client
//	failing.go       what ends a stream with an ERROR
//	fleet.go         which members a stream has: joining, leaving
//	member.go        one member: requests, its watch, backoff
//	list.go          one member: lists and differences
//	initial.go       one member: objects as initial events
//	form.go          Form: how a client wants objects; what its implementations do
//	formjson.go      objects and their metadata in JSON
//	formprotobuf.go  objects and their metadata in protobuf
//	formtable.go     Tables
//	events.go        kinds of events, reading watches in JSON
//	input.go         the bytes of a member's watch, and their buffer
//	kinds.go         what the objects of a stream are
//	objects.go       what a stream remembers of objects
//	positions.go     Positions: which version each member had at a version of the view
//	find.go          positions that other replicas know
//	transfer.go      what goes over to other replicas: writing and reading it
//	status.go        errors as the objects of ERROR events
package watch
