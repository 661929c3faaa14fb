// Package clusterprofile publishes in ClusterProfiles (KEP-4322) how their
// clusters are reached: through the proxy API. Tools that read access providers
// (MultiKueue, Argo CD, multicluster-runtime) find an address and a CA there and
// bring a credential of their own.
//
// OCM's registration controller makes the ClusterProfiles. Of each one this
// package owns one entry of status.accessProviders, by server-side apply, and
// nothing else: conditions, properties and the providers of others are not
// read and not written.
//
// The name, the extension and the form of the address are those of OCM's
// cluster-proxy. Different on purpose: the cluster is the one that the label
// names, not the one that the ClusterProfile happens to be called like; the CA
// is the bundle that clients may trust across rotations, not the leaf; the
// address may be one outside the hub; and an entry is there only while the addon
// is, since an address that leads nowhere is worse than none.
//
// # Files
//
//	reconciler.go  Reconciler
package clusterprofile
