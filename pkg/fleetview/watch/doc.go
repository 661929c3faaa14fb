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
// A client goes on where it was, for 5 minutes (package position). A watch that cannot be resumed is 410,
// before the stream begins, or as an ERROR event. While a member's list is being sent the client has a
// part of its objects only, and cannot tell which; versions from that time are not resumed. That begins
// with the first event of the list: a member that does not answer is no reason for 410.
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
//	serve.go      Serve: what a stream goes on from, and its answer
//	beginning.go  what is awaited before the answer begins: warnings, refusals
//	fleet.go      which members a stream has: joining, leaving
//	reflector.go  one member: its watch, backoff
//	initial.go    one member: objects as initial events
//	list.go       one member: lists and differences
//	request.go    reflector: one member's goroutine, and its requests
//	members.go    what members do to the stream: joining, events, refusals
//	kinds.go      what the objects of a stream are
//	awaited.go    what the initial bookmark waits for
//	write.go      what the client gets of the queue, and when it gets bookmarks
//	stream.go     stream: the queue, stamps, bookmarks, what ends it with an ERROR
//	member.go     member: what the stream knows of one, and of the client's objects of it
//	options.go    Options: what one watch is about; limits
package watch
