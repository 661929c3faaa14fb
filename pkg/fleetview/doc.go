// Package fleetview serves many clusters as one Kubernetes API. It knows a cluster as a
// Member, to which it sends requests as the user who asks, and nothing of tunnels or of
// the hub; over plain kube-apiservers it works as well.
//
// # A view grants nothing
//
// Each request is made on each member as the user, and a member's refusal is that member's:
// it is left out as one that does not answer. Which members a user may ask is decided
// before (View.Members).
//
// # One request, many members
//
// Lists, watches, discovery and a name without its cluster ask all members, at most 64 at a
// time. NAME@CLUSTER, and selectors, choose members.
//
// A view may have a resource of some of its members only (ResourceRule.Clusters), and one
// member that is asked about nothing but unlisted resources. A list of all namespaces is
// refused if the rules would make it one of some namespaces on some members.
//
// Members get the request's path and query, without what is the view's in them, and no
// header of the client but Accept, and for writes Content-Type and User-Agent. A path in
// which a member could read another name than the view is refused: one with an encoded
// slash up to the subresource, or with a segment of dots.
//
// # Names that lead to the cluster
//
// An answer calls the object as the request does. What kubectl asks for by NAME@CLUSTER it
// goes on to ask for by what it reads in the answer, and each of that leads to the cluster:
//
//   - the name: logs, exec, attach, port-forward, cp; in field selectors: wait, drain, events;
//   - the selector of a workload or a Service, by which kubectl finds pods. If it selects
//     anything it gets the label AnnotationCluster, which is no label of any object: a label
//     selector with it chooses clusters, as the field metadata.cluster does, and it is taken
//     off before members are asked. Selectors are written in JSON only, so such an answer is;
//   - the names of owners: drain asks for the DaemonSet of a pod;
//   - the namespace, if the request calls that NAMESPACE@CLUSTER. The objects in it have the
//     names then that they have there, and kubectl finds them where others refer to them.
//
// A list or a watch that is of one cluster, by a label, a field, a name in either, or the
// namespace, calls objects so too. Lists do not change selectors: what is listed is asked for
// by name. An object that was asked for by its plain name has neither in a Plain view, because
// programs compare what they read with what they wrote.
//
// All of that is taken off what is written (merge.Places), also where kubectl keeps what it
// has applied, so no cluster sees it. A write may name its cluster by any of it, or by a name
// that kubectl has put into another object: the owner of a Job that is made from a CronJob, the
// node of a pod that debugs it. What is written for one cluster and names another is refused,
// and so is a selector that may mean a cluster or not. Names that kubectl makes of NAME@CLUSTER
// where there can be no @ (labels, containers) are made of NAME.
//
// Logs, exec, attach, port-forward, proxy and all upgrades are not about objects. They go to
// View.Relay as they are, to the member that is found as for a write.
//
// # Writes
//
// A write is for one member, and so is a stream such as exec, in which anything may be said.
// By default (WritesNamed) it must name the member: in its path or selector, or by the object
// that it sends. A name alone is refused, and the refusal says which
// NAME@CLUSTER there is. Otherwise kubectl's delete --all, scale -l and rollout restart, which
// list and then write each object by its name, would change every cluster by habit. The
// annotation of a Scale does not count for the same reason: kubectl makes one of each object
// that it has listed.
//
// With WritesAny a name alone means the only member that has the object. Whether another has it
// too must be known for that, so it is refused while a member does not answer; and also if
// fewer than half of the members have the resource, because one of them could say that it has
// everything.
//
// These refusals are 409 without the reason Conflict, which clients take for a reason to try again.
//
// # Views of a single cluster
//
// A view that names one cluster, and selects by nothing else, can have no other unless somebody
// changes it (View.Single). It is not to be told from the cluster: requests go to View.Relay, and
// so do those for discovery, OpenAPI and paths that are no resource's. Objects have no
// annotation, Tables no column CLUSTER, resourceVersions are the cluster's. Whoever points a
// program at such a view wants that cluster by another name, and programs compare what they
// read with what they wrote, look into a cell by its place, or wait for a new CRD for less than
// a minute. A view that happens to have one cluster (by a set, a label, or the user's rights)
// is as every other: it would change its form under its clients when a second one joins.
//
// What the rules of such a view leave out is refused before anything is sent, and its discovery
// is made here then, of answers that nothing is known of before. NAME@CLUSTER, what selectors
// say of clusters, and the annotation of an object that is made mean in it what they mean in other views, and are
// taken off; other requests go on byte for byte. An annotation that is on an object is the
// cluster's own word. Writes need not name the cluster; with WritesNone they are refused.
//
// When somebody gives such a view a second cluster, or takes it away, clients have versions
// that mean nothing any more. Those are 410, so that clients list again, and watches that were
// relayed are ended by whoever relays them.
//
// # Lists
//
// Items pass through as bytes: package merge changes their metadata and decodes nothing. An
// answer has the items of one cluster after those of another, in the order of their names.
// The first MiB is kept before the header is sent: a member that breaks off in it is left
// out with a Warning. One that breaks off later ends the connection, because a list that
// lacks objects silently is worse than none.
//
// A page with a limit holds whole answers of members, or the first part of one: asking the
// last one for fewer would mean to ask it twice. So it may have fewer items than the limit,
// and has more only if a member does not heed it. It asks 8 members first, or as many as it
// needed the last time, and then as many as the sizes of the former ones let expect. Members
// that have not answered 300 ms after another one did are passed over, the first of many
// after up to 1.5 s (gather.go), and so are those that fail behind the first MiB of others;
// the last page waits for them, for the view's timeout, and has their Warnings. The items of
// a member wait in memory until all of them are known to fit on the page: 16 MiB at most,
// else they begin the next one. A member that fails when the page before had a part of its
// objects is not left out: its error is the answer, and the page can be asked for again.
//
// An answer without a limit waits for the beginning of each member's answer before its
// header, which has the Warnings. Half of the view's timeout after the others it does not
// wait any more: members that are late are named in Warnings, and their items come behind
// all others if they answer within the timeout. That is said of some that would have been
// in time; the alternative is that one silent cluster keeps everyone waiting. A view that
// is all or nothing waits.
//
// # Lists of informers
//
// An informer takes what is not in its list for deleted. Its list waits for members that do not
// answer, for View.InformerTimeout, which counts for all pages together. Pages before the last
// one pass them over. An answer without a limit, and the last page, is given up when a member does
// not begin it; the others would break off while they wait. The members that are missing are asked
// again each second, and then all of them anew. Then those that are still missing are left out, in
// Warnings and in an annotation of lists in JSON (AnnotationMissing). A member that breaks off
// within the time makes the answer an error, after which informers keep what they have.
//
// A list is an informer's if it has a resourceVersion, and is neither Exact nor a Table. Reflectors of
// client-go (0.36) list from 0 at first and from the newest version that they know later. They
// list without a version only after a list, or a request for initial events, was 410: none is. kubectl, consoles and
// scripts list without one, and do not wait. What is left: an informer that is not client-go's and
// lists without a version cannot be told from them, and a program that reads a list from the
// members' caches, by resourceVersion=0, waits. A view that is all or nothing does not wait: it answers 503.
//
// # Reading ahead
//
// When a member has begun, some of its answer is read in the background (4 MiB of all
// together), so that what comes from afar is under way at the same time. In protobuf a list's length comes first, so only pages with a
// limit are written in it, of 16 MiB at most; others are JSON if the client accepts that.
// An answer in YAML is JSON.
//
// # resourceVersion
//
// See package version for their form. An object's has the time at which the request for it
// began. A list's has nothing but that time: package watch keeps which version each member
// had then, and asks other replicas for lists of theirs. A write's is made the member's own by arithmetic.
//
// # Discovery
//
// A view serves the union of what its members serve: discovery, OpenAPI and /version. Each
// member is asked as the user, once a minute, and what it answers is known for that user
// only. Most members answer the same, byte by byte. An answer is therefore parsed and kept
// once per content, and what is merged of them once per set of contents.
//
// Where members differ, it is as most of them say (merge.Union): kinds, scopes, names and
// order, and each OpenAPI document. /version is that of the oldest release that two members
// have, because clients choose by it what they may send. The parts of an answer are bounded
// together, and parsing takes turns (package merge).
//
// A group, a version or a document that is in no answer may be new: members whose answers are
// older than a second are asked again before a client gets 404.
//
// A member that does not answer is left out with a Warning, or a former answer of the last
// ten minutes is used. So is one that there was no time for: of thousands of members no more
// are begun after 20 s, and those that were not asked come first the next time. Requests for
// objects ask no member for discovery.
//
// # Files
//
//	handler.go            one request, by its verb
//	single.go             requests of a view of a single cluster
//	request.go            what a request wants, and of which members
//	path.go               the path of a resource, and names in it
//	selector.go           field selectors that choose clusters
//	labels.go             label selectors that do
//	mention.go            what names a cluster in what is written, and leads to it in answers
//	form.go               what the client accepts
//	ask.go                requests to members
//	list.go               lists, page by page
//	informers.go          which lists are an informer's, and what they wait for
//	gather.go             members' lists as they begin
//	usual.go              how many members a first page needs
//	ahead.go              reads on while it is another member's turn
//	held.go               bounds what half-read answers take in memory, by user
//	agree.go              leaves out lists of another kind than most
//	page.go               the answer to a list
//	get.go                one object
//	write.go              writes to one cluster
//	writes.go             which requests are writes, and whether the view takes them
//	rewrite.go            answers with one object, and lists of what was deleted
//	watch.go              watches, for package watch
//	discovery.go          answers /api, /apis and /version
//	discoveryanswer.go    negotiation, ETags and missing clusters of those answers
//	discoveryask.go       asks members, and knows their answers for a while
//	discoverycache.go     a map of bounded size
//	discoverycatalog.go   what the members serve together
//	discoveryfetch.go     the requests to one member, for servers with and without aggregated discovery
//	openapi.go            answers the index of /openapi/v3
//	openapidocument.go    answers with the OpenAPI v3 document that two members have
//	openapiswagger.go     answers /openapi/v2
//	view.go               View and Member: what is served, and where it comes from
package fleetview
