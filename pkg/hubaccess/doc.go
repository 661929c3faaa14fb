// Package hubaccess, with the packages below it, asks the hub who calls, what they may do, and
// which managed clusters there are. It knows the hub's Kubernetes API and nothing of how requests
// are relayed or of tunnels. The proxy API uses all of it. The proxy servers use
// package clusters alone, with a service account that may list and watch ManagedClusters and
// ManagedClusterAddOns.
//
//   - authn finds the user of a request, and limits how often unverified credentials may be tried.
//   - authz asks what a user may do, and which of many clusters they may reach.
//   - clusters watches ManagedClusters, ManagedClusterSets, FleetViews and ResourceRegistries.
//   - outage lets past answers of the hub stand while it cannot be asked.
//   - fairqueue has questions to the hub take turns.
//
// # Files
//
//	hubaccess.go  what tells users and questions about permissions apart
package hubaccess
