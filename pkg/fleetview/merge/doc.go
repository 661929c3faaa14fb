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
// discovery are translated from and to it. The newest cluster comes first: where clusters
// differ, its order and its scope of a resource are taken. OpenAPI documents are not merged
// but for v2, which is one document: Swagger adds to the newest cluster's the paths that it
// lacks, and the definitions that those refer to.
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
// # Files
//
//	applied.go           what kubectl has applied, in an annotation
//	discovery.go         the types of aggregated discovery, and Catalog: what clusters serve together
//	discoverylegacy.go   translates discovery of servers and clients without aggregated discovery
//	discoveryunion.go    Union, and what makes a cluster the newest
//	jsonpatch.go         restores JSON patches
//	index.go             Item: an object of which it is known where its members are
//	key.go               Key: which object it is
//	list.go              what a list says of itself, and what is no list
//	majority.go          Majority: what the objects of several clusters are
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
//	restore.go           Restorer
//	rewrite.go           Rewriter, and the edit of metadata that it shares with Restorer
//	rewritejson.go       edits metadata in JSON
//	scan.go              checks JSON and finds where values end, in data that arrives in pieces
//	table.go             Table and Layout
package merge
