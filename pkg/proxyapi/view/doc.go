// Package view serves requests for many clusters, with package fleetview, which makes one
// answer of many. It asks clusters through Members, each of which is of one
// request and one user. A view grants nothing:
//
//   - Only users whom the hub knows may use views: a token that a cluster may know is 401,
//     because it must reach no other cluster, and so is a request without a credential.
//   - get on the FleetView is the right to the view. A view that is not there and one
//     without the right have the same answer: 403, or 404 with the views that the user may
//     use if the user may list FleetViews.
//   - Its clusters are those that the user may reach with the verb of this request (and
//     with streams, if it leaves the Kubernetes API), by name or by ManagedClusterSet.
//     Others are not mentioned in any answer. A request that package fleetview sends with
//     another verb needs that verb's right too, or is answered 403 in the cluster's place
//     (MayAlso): a right to list cannot be made to delete.
//   - AccessPolicies are asked about each request to a cluster, as the cluster gets it (decide). A refusal is an answer 403
//     in the cluster's place; a search leaves the cluster out with a Warning.
//   - Constrained impersonation through a view needs the right for all clusters.
//
// A FleetView of one name goes to that cluster as it is (View.Single): through the relay, with the
// same rights, the rules of the view and its timeout. A watch ends when the FleetView changes.
//
// A watch by WebSocket is answered as kube-apiserver answers it, and members are watched by HTTP. It ends
// with close code 1001 when the process drains, with 1008 when the session is ended or the user has
// lost a right, and with 1000 otherwise. Of a view of one name it is relayed as all else.
//
// A request counts once for its user, whatever the number of clusters, in limits of its
// own (--max-view-requests), so that views do not take the place of other requests; a
// watch is a stream as any other. logs, exec and the like go through the relay with
// the scope, the limits and the revalidation of their cluster. Redirects of a cluster lead
// to the cluster's own path. The audit event has the view and the clusters that were asked.
//
// # The fleet index
//
// In a view that reads Indexed, a member answers a list as Table from the fleet index, if the proxy API has one, and
// everything else from its cluster. So merging, pages and versions are the same for both: the Table has the cluster's own
// version, from which a watch goes on at the cluster. The hub is asked about each cluster as ever; the index asks the
// cluster what the user may list there. Where the index does not answer, clusters are asked, with a Warning.
//
// A search asks the index about the clusters of any view that the user may list in, unless the view has rules for
// resources, which the index does not know.
//
// # Files
//
//	view.go       a request for a view: its relay, its end
//	search.go     searches in the fleet index
//	websocket.go  the answer to a watch by WebSocket
//	members.go    one cluster of a view, for one request; Fleet, which requests share
//	loader.go     questions to the fleet index, for many clusters each
//	warnings.go   Warnings of an answer whose header is not sent yet
//	names.go      names of clusters, for the audit log
//	indexed.go    which lists the index answers in the place of a cluster, and how
package view
