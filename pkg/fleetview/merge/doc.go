// Package merge makes answers of several clusters into one. It knows bytes and no network:
// pkg/fleetview asks the members of a view and writes what this package returns.
//
// # Objects
//
// Rewriter makes an object of one cluster an object of the view: it sets the annotation with
// the cluster's name and translates metadata.resourceVersion. Restorer is its inverse, for
// what users write. Both copy bytes and look only at what they change. They never decode an
// object, because decoding and encoding would cost ten times as much as everything else that
// a list does, and would lose fields that no decoder here knows. What leads a client to the
// cluster outside of metadata is in Places, of single objects and of what is written only.
//
// # Lists
//
// Reader reads a list or a Table from a stream and yields one item after the other, in a
// buffer that grows to the largest item. Memory thus does not grow with the list, and rows
// go out while a member still sends. ProtobufReader does the same with lists in protobuf.
//
// Reading JSON costs more than everything else. So each byte is looked at once: what checks
// an item's syntax also notes where its members are, and those of its metadata (Item), and
// Rewriter and KeyOfItem go by that.
//
// # Discovery
//
// Union merges what clusters serve, in the form of aggregated discovery; the older kinds of
// discovery are translated from and to it. No cluster speaks for another. Groups, versions
// and resources that more than half of the clusters have come first, each at the median of
// its places in their lists, and then the others. Of one resource, the scope and then the
// kind are what most clusters say, and it is left out for those that say something else.
// Short names and categories are those that more than half of the clusters give.
//
// Clients go from names to kinds and from kinds to resources, and of two they believe the
// last, or the first. So a kind, a name or a singular belongs to the resource of a group and
// version that most clusters have, and another resource that has it is left out, unless most
// of those clusters have both, as OpenShift's do. A resource is also left out if it comes
// before one of another group that has its name in more clusters. A short name is taken from
// a resource if it is a name of one that more clusters have.
//
// Of what equally many clusters say, it is what is usual: a resource called like its kind,
// pods for Pod. If that decides nothing it is what the cluster says that is first by name,
// which no cluster chooses itself.
//
// OpenAPI documents are not merged but for v2, which is one document: Swagger adds to one
// the paths that it lacks, and the definitions that those refer to.
//
// # What members may send
//
// A member can be malicious, but it must not harm the answers of other members. A document
// is therefore read as strictly as encoding/json reads it, nested at most 10,000 deep, and
// what is malformed is an error of that member. Decoders disagree about keys that are given
// twice, or in another case. A member could use that to show one cluster's name to some
// clients and another one to others. Keys given twice are an error where they matter, and
// keys that differ by case only are left out.
//
// Documents that are parsed, as those of discovery and OpenAPI, are counted while they are
// read (Budget), and nothing is kept of what could not be part of a URL. A cluster may have
// 2,000 groups, 10,000 versions of them, 20,000 resources, 64 subresources and verbs of each,
// texts of a KiB, and 32 MiB of all this in memory; one without aggregated discovery 500
// versions of groups, each of which is a request. A usual cluster has 30 groups and 100
// resources. 5,000 CRDs in two versions are 10,000 resources, 5 MiB of JSON and 9 MiB of
// memory.
//
// # Files
//
//	applied.go           what kubectl has applied, in an annotation
//	discovery.go         the types of aggregated discovery, and Catalog: what clusters serve together
//	discoverylegacy.go   translates discovery of servers and clients without aggregated discovery
//	discoverynames.go    sees to it that names lead to what most clusters mean by them
//	discoveryunion.go    Union
//	document.go          reads JSON documents, and counts what they have
//	jsonpatch.go         restores JSON patches
//	index.go             Item: an object of which it is known where its members are
//	key.go               Key: which object it is
//	list.go              what a list says of itself, and what is no list
//	majority.go          what most clusters say, and in which order
//	object.go            walks the members of a JSON object
//	openapi.go           the index of OpenAPI v3 documents; OpenAPI v2 documents
//	places.go            Places: selectors, and names of other objects
//	protobuf.go          edits metadata in protobuf
//	protobufevent.go     events of watches, and Statuses, in protobuf
//	protobuflist.go      lists in protobuf
//	protobufplaces.go    restores Places, labels and owners in protobuf
//	protobufreader.go    ProtobufReader
//	readbuffer.go        the buffer of a Reader
//	reader.go            Reader
//	release.go           Release: a minor release of Kubernetes
//	restore.go           Restorer
//	rewrite.go           Rewriter, and the edit of metadata that it shares with Restorer
//	rewritejson.go       edits metadata in JSON
//	scan.go              checks JSON and finds where values end, in data that arrives in pieces
//	table.go             Table and Layout
package merge
