// Package authz asks the hub what users may do.
//
// Authorizer asks the hub by SubjectAccessReview and believes an answer for 5 s. A right
// to a cluster is clusters/proxy with its name and the verb of the request (get for a self
// review, which changes nothing), and create on clusters/stream for requests that leave the Kubernetes API. The right to the metrics of its
// agents is get on clusters/metrics, which neither of these implies. The same subresources of
// clustersets, with the name of a ManagedClusterSet, are the right to each cluster that
// is in the set (both types of selectors). A cluster is asked about by its name first. If
// that is denied the hub is asked about all sets, whatever sets the cluster is in, so that
// the time that a refusal takes does not tell whether there is such a cluster. Users who may
// change the labels of ManagedClusters, or the sets, decide with that who may reach them:
// OCM guards both by its own right managedclustersets/join.
//
// It also answers which clusters of many a user may reach with a verb: one question for
// all clusters, and if that is denied, one for each set, and one for each cluster that is
// left. The hub's answers are remembered by user, right and name:
//
//   - That a user may is believed for 5 s, as everywhere. If asking about the rest takes longer,
//     the hub is asked again about the clusters that it allowed. If it needs more than 5 s for these
//     (some thousand clusters by name), the list is late, and a view asks once more
//     before it sends a request to a cluster.
//   - That a user may not is believed for 5 s, and for a minute in lists of more than 500 clusters
//     that are in no set of the user's. A cluster for which a right was just
//     given may be missing from lists and views for so long. A request to the cluster itself
//     asks on its own.
//   - A list that takes longer than 30 s is an error (ErrUnfinished) and no part of a list.
//     The next try goes on with what is missing.
//   - 16 questions are asked at a time, for all users together. Users take turns, however many
//     lists each waits for.
//   - 131,072 answers are remembered, 32 MiB. The one used least lately goes first.
//
// Above 500 rights by name, use a ManagedClusterSet. At a hub that takes 5 ms for an answer, a user
// with a right to each of 5,000 clusters by name waits 1.6 s for the first list and for the 99th
// percentile of one list a second; with a right to 500 of them 1.6 s and 1.4 s, and 0.16 s for
// most lists that ask anything (TestTimeOfLists, without the time of processors).
//
// # Files
//
//	reachable.go   which clusters and views a user may reach, by name and by set
//	authorizer.go  Authorizer: what a user may do
//	lists.go       which of many names a user has a right to, and what the hub said of each
//	rights.go      Right: a right to clusters, by name and by set, and to views
package authz
