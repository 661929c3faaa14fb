// Package leftovers removes what OCM's own cluster-proxy leaves behind on the hub
// that grants a right or holds a key, once its proxy servers serve no client any more:
//
//   - ClusterRole and ClusterRoleBinding cluster-proxy-addon-agent-tokenreview, by
//     which its agents ask the hub whose tokens are;
//   - Role and RoleBinding cluster-proxy-addon-agent in the namespace of each
//     cluster with the addon. They are for a group that is in the certificate of
//     every former agent of every cluster: with them each could write the Leases of
//     all, for as long as its certificate is valid;
//   - Secret cluster-proxy-service-proxy-server-cert: a key, and a certificate of
//     the hub CA for every name, that all its agents had.
//
// Each object is recognized by its exact name and by what it is: the owner that
// upstream's addon manager gives it, or, where it gives none, the very rules and
// subjects. Other objects of the same name stay. Upstream's addon manager makes them
// again after a rollback. Its definition ManagedProxyServiceResolver stays: it grants
// nothing, and upstream's addon manager does not start without it.
//
// # Files
//
//	leftovers.go  Remover
package leftovers
