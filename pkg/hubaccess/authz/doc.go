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
// left; once at a time for each user, verb and view. The hub's answers are remembered by
// cluster (memory), so that the next list asks about few of them:
//
//   - That a user may is believed for 5 s, as everywhere. If asking about the rest takes longer,
//     the list asks about it again at its end. Where the hub needs more than 5 s for all that it
//     allows (some thousand clusters by name), the list is late, and a view asks once more
//     before it sends a request to a cluster.
//   - That a user may not is believed for 5 s in lists of up to 500 clusters, and for 10 ms for
//     each cluster of more: 50 s of 5,000, a minute at most. A cluster for which a right was just
//     given may be missing from lists and views for so long. A request to the cluster itself
//     asks on its own. Entries past half their time are refreshed after a list, while nobody
//     waits, so that a user who lists again and again never waits for denials.
//   - A list that takes longer than 30 s is an error (ErrUnfinished) and no part of a list.
//     The next try goes on with what is missing, as it does after a list that nobody waits
//     for any more: that asks nothing new.
//   - 16 questions are asked at a time, for all users together. Users take turns, however many
//     lists each waits for.
//   - A list that was made is used again for 5 s, in which the hub said all that it allows. Half a
//     million answers are remembered, 32 MiB, and an eighth of them for one user's name; four names
//     of such lists count as an answer. The entry used least lately goes first, and all go after a minute.
//
// # Files
//
//	reachable.go   which clusters and views a user may reach, by name and by set
//	authorizer.go  Authorizer: what a user may do
//	lists.go       lists of what a user may do, asked once at a time
//	cache.go       what the hub said of each name of a list, and lists that were made
//	rights.go      Right: a right to clusters, by name and by set, and to views
package authz
