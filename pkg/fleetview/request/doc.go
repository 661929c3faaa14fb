// Package request reads what a request of a fleet view wants, and of which members, and changes
// the names of what is written and answered.
//
// # Which clusters
//
// A request is about all members of its view, unless it says otherwise: by its path (a name
// NAME@CLUSTER, a namespace NAMESPACE@CLUSTER), by its selectors (label AnnotationCluster, field
// metadata.cluster, and names NAME@CLUSTER as values), or by the object that it sends. A selector that
// may mean a cluster or not is refused, and so is a path in which a member could read another name than
// the view.
//
// # Names that lead to the cluster
//
// An answer calls the object as the request does. Kubectl goes on from NAME@CLUSTER
// with names that it reads in the answer, so each of them leads to the cluster: the name; the
// selector of a workload or a Service, which gets the label AnnotationCluster, in JSON only; the
// names of owners; and the namespace, if the request says NAMESPACE@CLUSTER. A list or a watch that
// is of one cluster calls objects so too. An object that was asked for by its plain name has none of it
// in a Plain view, because programs compare what they read with what they wrote.
//
// All of that is taken off what is written (merge.Places), also where kubectl keeps what it has
// applied. An object written for one cluster that names another is refused.
//
// # Files
//
//	read.go      what a request wants, and which requests a view without writes refuses
//	selector.go  field and label selectors that choose clusters
//	rewriter.go  makes answers the view's
//	body.go      what names a cluster in what is written
//	request.go   Request: the clusters that one is about
//	kind.go      which requests change something, and which are streams
//	form.go      what the client accepts
//	path.go      the path of a resource, and names in it
package request
