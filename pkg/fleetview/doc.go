// Package fleetview serves many clusters as one Kubernetes API. It knows a cluster as a fleet.Member, to
// which it sends requests as the user who asks, and nothing of tunnels or of the hub.
//
// # A view grants nothing
//
// Each request is made on each member as the user, and a member's refusal is that member's: it is
// left out as one that does not answer. Which members a user may ask is decided before
// (fleet.View.Members). Lists, watches, discovery and a name without its cluster ask all of them, at most
// 64 at a time; NAME@CLUSTER and selectors choose. Members get the request's path and query without
// what is the view's in them, and no header of the client but Accept, and for writes Content-Type
// and User-Agent. A path in which a member could read another name than the view is refused.
//
// # Names that lead to the cluster
//
// An answer calls the object as the request does. Kubectl goes on from NAME@CLUSTER
// with names that it reads in the answer, so each of them leads to the cluster: the name; the
// selector of a workload or a Service, which gets the label AnnotationCluster, in JSON only; the
// names of owners; and the namespace, if the request says NAMESPACE@CLUSTER. A list or a watch that
// is of one cluster calls objects so too. A selector with that label, or with the field
// metadata.cluster, chooses clusters. An object that was asked for by its plain name has none of it
// in a Plain view, because programs compare what they read with what they wrote.
//
// All of that is taken off what is written (merge.Places), also where kubectl keeps what it has
// applied. An object written for one cluster that names another is refused, and so is a selector that
// may mean a cluster or not. Logs, exec, attach, port-forward, proxy and all upgrades go to
// View.Relay as they are, to the member that is found as for a write.
//
// # Writes
//
// A write, and a stream such as exec, is for one member. By default (WritesNamed) it must name it:
// in its path or selector, or by the object that it sends. Otherwise delete --all, scale -l and
// rollout restart, which list and then write each object by its name, would change every cluster by
// habit. A Scale's annotation does not count for the same reason. With WritesAny a name alone means
// the only member that has the object, if every member has answered and most of them have the
// resource. Refusals are 409 without the reason Conflict, which clients take for one to try again.
//
// # Views of a single cluster
//
// A view that names one cluster and selects by nothing else (View.Single) is not to be told from
// it: requests go to View.Relay byte for byte, discovery too, and objects and versions are the
// cluster's, because whoever points a program at it wants that cluster by another name. A view that
// happens to have one cluster is as every other: it would change its form when a second one joins.
// A resource that the rules leave out is refused before anything is sent. When such a view gets a second
// cluster, former versions are 410.
//
// # Lists
//
// Items pass through as bytes: package merge changes their metadata and decodes nothing. An answer
// has one cluster's items after another's, in the order of their names. The first MiB is kept before
// the header is sent: a member that breaks off in it is left out with a Warning. One that breaks off
// later ends the connection, because a list that lacks objects silently is worse than none.
//
// A page with a limit holds whole answers of members, or the first part of one. Members that have
// not answered 300 ms after another are passed over (gather.go); the last page waits for them, for
// the view's timeout. An answer without a limit waits half of that for the beginning of each answer
// and names who is late in Warnings. Of an answer that is not its turn yet, some is read ahead.
//
// An informer takes what is not in its list for deleted. Its list waits for View.InformerTimeout,
// for all pages together, and names what is missing then in AnnotationMissing. A list is an
// informer's if it has a resourceVersion and is neither Exact nor a Table: reflectors of client-go
// (0.36) list from 0 or from a version, and kubectl, consoles and scripts without one.
//
// An object's resourceVersion has the time at which the request for it began, a list's nothing but
// that time (package version): package watch keeps which version each member had then.
//
// Package discovery answers for what a view serves, as the union of what its members serve.
//
// # Files
//
//	handler.go    one request, by its verb; requests of a view of a single cluster
//	watch.go      watches, for package watch
//	get.go        one object
//	write.go      writes to one cluster, and which requests are writes
//	review.go     reviews, and how the view is, of all members
//	list.go       lists, page by page
//	gather.go     members' lists as they begin, and read ahead
//	page.go       the answer to a list
//	informers.go  which lists are an informer's, and what they wait for
//	agree.go      leaves out lists of another kind than most
//	rewrite.go    answers with one object, what names a cluster in what is written
//	request.go    what a request wants, and of which members
//	selector.go   field and label selectors that choose clusters
//	path.go       the path of a resource, and names in it
//	form.go       what the client accepts
//	ask.go        requests to members
package fleetview
