// Package addonmanager is the process on the hub that installs everything else:
// proxy servers beside it and agents on managed clusters.
//
// It wires these into one manager, all behind one leader election:
//
//   - package proxyconfig reconciles ManagedProxyConfigurations into what runs
//     on the hub, with certificates by package certificates;
//   - package agentaddon tells OCM's addon-framework how agents register and
//     what is installed for them;
//   - package clusterprofile, if asked for, publishes how clusters are reached;
//   - package leftovers removes what OCM's own cluster-proxy left on the hub;
//   - package apiservice keeps the CA bundle of the proxy API's APIService;
//   - the re-render controller (rerender.go) asks the framework to render a
//     cluster's manifests again when something changes that the framework does
//     not watch: a configuration, a load balancer's address, a CA. What does not
//     change manifests renders nothing, a status for example, and 50 clusters a
//     second are asked for, so that a new one does not wait behind thousands.
//
// While a CA is rotated the manager is a client of the proxy servers too: it asks
// agents through the tunnel whether they have moved (certificates.AgentChecker), with
// certificates that it makes for that and keeps nowhere.
//
// It starts before its definitions and its configuration exist and waits.
//
// # Rights
//
// The account is not the one that upstream's addon manager, and this one's before,
// runs as: the chart binds rights to one of them. Of two releases in an upgrade or a
// rollback only the one that is installed can change anything, from the first
// moment on, and whether the other still leads does not matter (lease.go).
//
// Secrets, Services, Deployments and all that is installed on the hub are read
// and written in the manager's own namespace only, and its cache holds nothing
// of others; cert-manager's Certificates and Issuer of signer type CertManager
// are there too. Over the whole hub it reads clusters, addons and their
// configurations, writes ManifestWorks, the status of addons and, behind its
// feature gate, that of ClusterProfiles, keeps the APIService of the aggregated
// API, and approves and signs certificate signing requests of its own signer (in
// PortForward mode it approves those of kubernetes.io/kube-apiserver-client too,
// with the same strictness). The chart's rbac.yaml is the exact list.
//
// # Files
//
//	manager.go    Manager: wires everything into one process, and waits for the APIs
//	options.go    its flags
//	lease.go      the Lease of the election
//	rerender.go   asks for manifests again when something they depend on changes
//	notices.go    the condition VariablesIgnored of addons
//	leftovers.go  starts package leftovers
package addonmanager
