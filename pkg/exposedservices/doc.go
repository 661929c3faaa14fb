// Package exposedservices reads the list of Services on managed clusters that
// may be reached through the hub: upstream's ConfigMap
// cluster-proxy-exposed-services, of which every key holds a YAML list of
// {namespace, service, port?, protocol?}, and what is new here: clusters?,
// clusterSets?, forwardAuthorization? and anonymous?.
//
// The proxy API enforces the list for its clients, and the agent enforces it
// again for whoever has the hub: the addon manager hands every agent the entries
// that are about its cluster. What is not listed is denied. A list that does not
// parse leaves the last good one in force; a ConfigMap that is deleted is an
// empty list.
//
// A ManagedClusterSet is one that clusters join by the label
// cluster.open-cluster-management.io/clusterset, which OCM's webhook lets those set
// who may join the set. Sets that select clusters by other labels are not looked
// up: whoever may set a label would expose Services. Their names match no cluster.
//
// An entry with forwardAuthorization lets callers log in to the Service, with
// what they send in Cluster-Proxy-Authorization; package proxyapi says why it is a
// header of its own. The agent makes it the request's Authorization, if its own
// list says so too.
package exposedservices
