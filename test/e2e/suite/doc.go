// Package suite prepares the clusters on which the scenarios of test/e2e run, and
// holds what more than one theme of scenarios needs: ways to a cluster, requests,
// traffic, and what to wait for.
//
// A Suite is a hub and managed clusters with the addon: a lab that Start starts,
// or clusters that others made, of which it is given kubeconfigs. There is one for
// the whole run. Helpers that change the clusters say so, and put back what they
// changed when the test ends.
//
// Files:
//
//	suite.go      Options, Suite, and what is skipped without a lab of its own
//	start.go      running tests on a lab with the chart that it starts, or on clusters that it finds
//	users.go      the hub's user, and an administrator and a viewer of each cluster
//	endpoints.go  the ways to a cluster's kube-apiserver: straight, and each endpoint
//	views.go      fleet views, the ways to them, and users with chosen rights
//	requests.go   requests, byte for byte; what answers have in common; watches
//	objects.go    clients, namespaces for one test, Deployment web, rollouts
//	kubectl.go    the real kubectl, and kubeconfigs
//	addon.go      the addon: is it Available, how to change, remove and reinstall it
//	fleetindex.go what is in the fleet index, and what is to be in it
//	processes.go  the processes of the addon's pods: frozen, killed, replaced
//	secrets.go    CAs and certificates on the hub and on clusters
//	traffic.go    clients that are at work while something happens
//	wait.go       how long anything may take
//	delay.go      a connection with a long way, for the benchmark
//	logs.go       the logs of a failed run
package suite
