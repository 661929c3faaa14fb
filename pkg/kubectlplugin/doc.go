// Package kubectlplugin is the kubectl plugin of the addon, "kubectl clusterproxy". It
// speaks to the hub with the user's own kubeconfig, through the aggregated API, and needs
// no right that the user does not have.
//
//   - Exit statuses are one table: 0 done and good, 1 something is not good, 2 it could not
//     be done or found out (Run).
//   - Text goes to standard output if a script could want it, and to standard error
//     otherwise. A command that waits says for what.
//   - The number of requests does not grow with the number of clusters, but for commands
//     that ask each cluster, which bound how many they ask at a time.
//
// Package cli has what all commands share; packages diagnose, kubeconfig and pass have the
// commands of these subjects.
//
// # Files
//
//	command.go     Run, and the commands below their headings
//	policies.go    policies: AccessPolicies, and which of them do not compile
//	views.go       views: FleetViews, their clusters, and what the fleet index has of them
//	search.go      search: objects of all clusters, in the fleet index
//	services.go    services: what is exposed, and by which URL
//	whoami.go      whoami: who the user is on a cluster
//	localproxy.go  proxy: a local port for a cluster or a view
//	replay.go      replay: shows a recording
package kubectlplugin
