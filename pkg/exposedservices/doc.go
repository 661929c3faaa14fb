// Package exposedservices reads the list of Services on managed clusters that
// may be reached through the hub: upstream's ConfigMap
// cluster-proxy-exposed-services, of which every key holds a YAML list of
// {namespace, service, port?, protocol?}.
//
// The proxy API enforces the list for its clients, and the agent enforces it
// again for whoever has the hub: the addon manager hands it to every agent.
// What is not listed is denied. A list that does not parse leaves the last good
// one in force; a ConfigMap that is deleted is an empty list.
package exposedservices
