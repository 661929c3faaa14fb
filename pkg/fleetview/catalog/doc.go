// Package catalog merges what clusters serve: discovery and OpenAPI. It knows bytes and no
// network.
//
// # Union
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
//	legacy.go      translates discovery of servers and clients without aggregated discovery
//	openapi.go     the index of OpenAPI v3 documents; OpenAPI v2 documents
//	union.go       Union
//	names.go       makes names lead to what most clusters mean by them
//	catalog.go     Catalog: what clusters serve together
//	majority.go    what most clusters say, and in which order
//	aggregated.go  reads and writes aggregated discovery
//	document.go    the types of discovery; reads JSON documents, and counts what they have
package catalog
