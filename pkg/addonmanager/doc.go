// Package addonmanager is the process on the hub that installs everything else:
// proxy servers beside it and agents on managed clusters.
//
// It wires these into one manager, all behind one leader election:
//
//   - package proxyconfig reconciles ManagedProxyConfigurations into what runs
//     on the hub, with certificates by package certificates;
//   - package agentaddon tells OCM's addon-framework how agents register and
//     what is installed for them; framework.go runs its controllers, each of which
//     looks at ten clusters at a time;
//   - package clusterprofile, if asked for, publishes how clusters are reached;
//   - package fleetview writes the status of FleetViews, and package accesspolicy that of AccessPolicies;
//   - package passes makes the accounts of Passes, and deletes Passes that have expired;
//   - package leftovers removes what OCM's own cluster-proxy left on the hub;
//   - package apiservice keeps the CA bundle of the proxy API's APIService;
//   - the re-render controller (rerender.go) asks the framework to render a cluster's
//     manifests again when something changes that the framework does not watch: a
//     configuration, a load balancer's address, a CA. A change that cannot alter
//     manifests, of a status for example, renders nothing. At most 50 clusters a second
//     are rendered, so that a new cluster does not wait behind thousands.
//
// While a CA is rotated the manager is a client of the proxy servers too: it asks
// agents through the tunnel whether they have moved (certificates.AgentChecker), with
// certificates that it makes for that purpose and does not store.
//
// With a fleet index (--fleet-index-resources) certificates include the index's, and agents
// get the right to read what is indexed. Both go with the flag.
//
// If its definitions or its configuration do not exist yet, the manager waits for them.
//
// # Rights
//
// The service account differs from that of upstream's addon manager and of earlier
// releases, and the chart binds rights to one account only. In an upgrade or a
// rollback, only the release that is installed can change anything, from the first
// moment on, even while the other one still leads (lease.go).
//
// Secrets, Services, Deployments and all that is installed on the hub are read
// and written in the manager's own namespace only, and its cache holds nothing
// of others; cert-manager's Certificates and Issuer of signer type CertManager
// are there too. Over the whole hub it reads clusters, addons and their
// configurations, ManagedClusterSets, FleetViews and Passes. It deletes Passes, and makes their service accounts in their namespace. It writes ManifestWorks, the
// status of addons, of FleetViews and, behind its feature gate, that of
// ClusterProfiles, keeps the APIService of the aggregated API, and approves and signs
// certificate signing requests of its own signer (in PortForward mode it approves those
// of kubernetes.io/kube-apiserver-client too, with the same strictness). The chart's
// rbac.yaml is the exact list.
//
// # Files
//
//	manager.go     Manager: wires everything into one process
//	served.go      starts package leftovers, and when their kinds are served, packages fleetview,
//	               accesspolicy, karmada, passes and clusterprofile
//	available.go   the metric that says of which clusters the addon is available
//	lease.go       the Lease of the election
//	framework.go   addon-framework's controllers, with their informers and workers, and what
//	               they get of requests for certificates
//	notices.go     the condition VariablesIgnored of addons
//	rerender.go    asks for manifests again when something they depend on changes
//	options.go     the flags
package addonmanager
