// Package clusterprofile publishes in ClusterProfiles (KEP-4322) how their
// clusters are reached: through the proxy API. Tools that read access providers
// (MultiKueue, Argo CD, multicluster-runtime) find an address and a CA there and
// bring a credential of their own.
//
// OCM's registration controller makes the ClusterProfiles. This package owns one entry
// of status.accessProviders in each, by server-side apply, and nothing else: it neither
// reads nor writes conditions, properties and the providers of others.
//
// The name, the extension and the form of the address are those of OCM's cluster-proxy.
// These differ on purpose: the cluster is the one in the label, not in the
// ClusterProfile's name; the CA is the bundle that clients may trust across rotations,
// not the leaf; the address may be one outside the hub; and the entry exists only while
// the addon does, since an address that leads nowhere is worse than none.
//
// # Files
//
//	reconciler.go  Reconciler
package clusterprofile
