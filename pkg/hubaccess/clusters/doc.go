// Package clusters watches the hub's managed clusters, and what selects some of them:
// FleetViews, ManagedClusterSets, AccessPolicies and Karmada's ResourceRegistries.
//
// # Which clusters are served
//
// A cluster is served while all of this holds:
//
//   - a ManagedCluster of that name exists and is not being deleted,
//   - the hub accepts it (spec.hubAcceptsClient),
//   - its ManagedClusterAddOn cluster-proxy exists and is not being deleted.
//
// OnGone functions run as soon as one of these ends, and also when an object was
// replaced by another one with the same name, which a watch may report as one
// update. A ManagedCluster that returns under its old name is another cluster.
//
// The list of clusters stays valid while the hub cannot be asked. Before the first answer
// Clusters.Synced returns an error, and the caller decides: the proxy API refuses
// requests, a proxy server admits agents by their certificate alone and looks at them
// again after the answer.
//
// # Whose agent a certificate belongs to
//
// A certificate of an agent holds the UID of the ManagedCluster that it was issued
// for, as an organizational unit (identity.ClusterUnit). Admit compares the two.
// Certificates that older addon managers issued have no UID. They are admitted if
// they were issued after the ManagedCluster was created, because then they cannot
// belong to the previous holder of the name; so an upgrade cuts no agent off, and
// OCM's registration agent replaces these certificates as soon as the addon manager
// asks for the new subject.
//
// A hub that is rebuilt from a backup of its objects has new UIDs. OCM's
// registration agents see the changed subject and ask for certificates by
// themselves; agents are refused until that is done, which takes seconds.
//
// # Fleet views
//
// Views watches FleetViews and ManagedClusterSets. get on the FleetView is all the right
// that a view itself needs, and the view grants nothing: which of its clusters a user
// may reach is asked as above. A view has the served clusters that it selects. A hub may
// have neither kind, or be one on which we may not read them. Then there are no views and
// no sets, nothing else is hurt, and they are looked for again at times. Until it is known
// which sets there are, a cluster that is denied by name is an error and no refusal, so
// that nobody with a right to a set is cut off by a restart. Nothing waits for views.
//
// # Karmada's ResourceRegistries
//
// Registries watches the objects that Karmada's ResourceRegistries are stored as. Each selects
// resources by kind, and clusters by name, label and two ClusterClaims. One that asks for
// something else, such as a field that OCM does not have of clusters, has its resources and no
// cluster. Rights to clusters may be asked for in Karmada's API group (Right.In); they have
// nothing to do with those in the addon's.
//
// # Access policies
//
// Policies watches AccessPolicies and compiles each (package accesspolicy) when its spec changes. They restrict, so
// what is not known must not mean that there are none: Policies.Set is an error until they were read once, and
// while the hub refuses to show them. On a hub without the kind there are none. When the kind is installed
// later, its first policies hold as soon as it is looked for again, within a minute. A policy that names a set that does not exist,
// or has a selector that means nothing, selects all clusters. While the hub cannot be asked, the
// policies that were read last hold.
//
// # Files
//
//	policies.go           the watch of AccessPolicies
//	registries.go         the watch of ResourceRegistries
//	views.go              the watch of FleetViews and ManagedClusterSets
//	clusters.go           the watch of clusters: which are served, and whose agents
//	registryselection.go  what of which clusters a ResourceRegistry selects
//	selection.go          which clusters a FleetView selects, which sets a cluster is in
package clusters
