// Package apigroup serves the kinds of the aggregated API by k8s.io/apiserver: clusters and
// their subresources, sessions, and Karmada's kinds. It is where clients discover them; a
// request for clusters/<name>/proxy never comes here.
//
// The aggregated API also has the list of clusters that the caller may reach (see
// package hubaccess/authz for how often the hub is asked about each),
// and clusters/<name>/identity, which says who the caller is there. clusters/<name>/metrics
// is answered by the cluster's agent, with its own metrics: it takes the way of a request to
// the cluster, with the right to get clusters/metrics (or clustersets/metrics) in place of
// the others. It has no path below it and no other method. clusters/-/targets tells the
// hub's Prometheus which of them it may read, and which exposed Services. First segments that
// the proxy API needs itself (route.Own) are no clusters in the direct endpoint.
//
// The resource fleetviews of this group, whose proxy leads to views, is in no discovery: it would
// hide the FleetViews of group proxy.open-cluster-management.io from "kubectl get fleetviews".
//
// # Karmada's API
//
// Karmada's documentation of clusters/<name>/proxy and of proxying/karmada/proxy works on the
// hub, by APIServices, and the code behind it is that of the addon's own endpoints. The
// hub is asked for what Karmada's URL says:
//
//   - The rights to clusters are those to clusters/proxy and clusters/stream (and the same of
//     clustersets) in group cluster.karmada.io. A right in one group is none in the other:
//     whoever writes a role for Karmada's URLs has not thought of ours. Karmada itself has
//     exec in clusters/proxy; here it needs create on clusters/stream too.
//   - clusters/*/proxy needs the right to a cluster of the name "*", and proxying/karmada/proxy
//     that to proxying/proxy of the name karmada, with the inner request's verb. Neither grants
//     a cluster. In Karmada the latter shows all cached objects, and the control plane's as its
//     administrator; here the cluster --karmada-control-plane is asked as the user, as any other.
//
// A ResourceRegistry selects a kind, of which the view needs the resource. It is derived from
// the kind's name (hubaccess.RegistryResource.Plurals). No cluster is asked for it.
//
// An aggregated API has no CustomResourceDefinition. ResourceRegistries are therefore served
// by k8s.io/apiserver as other kinds are, with discovery, OpenAPI, patches and server-side
// apply, and stored as KarmadaResourceRegistries of the addon's group (registries.go): the
// hub's kube-apiserver has their versions, watches and validation. The proxy API reads and
// writes them as itself. The user's right to the ResourceRegistry was asked for before, so
// nobody needs a right to what it is stored as, and nobody is impersonated: the proxy API
// would need the right to impersonate all users of the hub for it. The hub's own audit log
// has the user's request, because its kube-apiserver sends it here.
//
// # Files
//
//	apigroup.go    discovery, OpenAPI and the storages of each kind
//	karmada.go     clusters of Karmada's API
//	registries.go  ResourceRegistries of Karmada's API, and what they are stored as
//	sessions.go    sessions, those of all replicas
//	whoami.go      clusters/<name>/identity
//	targets.go     clusters/-/targets, for Prometheus' http_sd
//	clusters.go    clusters
//	fleetviews.go  the list of FleetViews, for the page
package apigroup
