// Package hubaccess knows what the hub says about managed clusters: which ones may
// be served, and whose agent a certificate belongs to. The proxy API and the proxy
// servers use it, each with a service account that may list and watch
// ManagedClusters and ManagedClusterAddOns.
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
// # While the hub does not answer
//
// What was read last stays valid. Before the first answer Synced returns an error,
// and the caller decides: the proxy API refuses requests, a proxy server admits
// agents by their certificate alone and looks at them again after the answer.
//
// # Files
//
//	clusters.go  the watch and what it keeps of each object
//	admit.go     which clusters and agents are served
package hubaccess
