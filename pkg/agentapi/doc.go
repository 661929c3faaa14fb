// Package agentapi holds what the hub and the agents have agreed on besides the
// wire: HTTP headers, packets of the control session, and the list of exposed
// Services.
//
// # Headers
//
// The user of a request is in Kubernetes' headers for front proxies (X-Remote-*),
// the Service that it is for is in upstream's Cluster-Proxy-*, and so is that it is for the
// agent itself (Cluster-Proxy-Agent). Both ends delete
// what could be taken for one of these before they set their own, and some servers
// take an underscore for a hyphen. So names are compared here and nowhere else: by
// their beginnings, in any case, with an underscore equal to a hyphen.
//
// # The control session
//
// The control session of an agent is a carrier.Session, whose messages control.go names, and
// which is the agent's idle carrier as well.
//
// # Exposed Services
//
// The list says which Services on managed clusters may be reached through the hub.
// It is upstream's ConfigMap cluster-proxy-exposed-services, of which every key
// holds a YAML list of {namespace, service, port?, protocol?}, and what is new here:
// clusters?, clusterSets?, forwardAuthorization? and anonymous?.
//
// The proxy API enforces the list for its clients, and the agent enforces it again
// for whoever has the hub: the addon manager hands every agent the entries that are
// about its cluster. A Service that is not listed is denied, and so is one whose entry has a mistake; the
// entries beside it count. A list that does not parse leaves the last good one in force; a ConfigMap that is deleted is an empty list.
//
// A ManagedClusterSet is one that clusters join by the label
// cluster.open-cluster-management.io/clusterset, which OCM's webhook lets those set
// who may join the set. Sets that select clusters by other labels are not looked
// up: whoever may set a label would expose Services. Their names match no cluster.
//
// An entry with forwardAuthorization lets callers log in to the Service, with what
// they send in Cluster-Proxy-Authorization; package proxyapi says why it is a header
// of its own. The agent makes it the request's Authorization, if its own list says
// so too.
//
// Files: headers.go has the headers, control.go the control session's messages,
// exposed.go the list of exposed Services.
package agentapi
