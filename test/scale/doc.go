// Command scale measures what thousands of clusters cost: "make scale" with SCALE clusters.
// It writes results.txt, a table with a column for each number of clusters, which says how each
// figure grows.
//
// # What is real
//
// The hub is a lab's: etcd, kube-apiserver, controller manager, and OCM's definitions with the
// webhook that converts addons. The addon manager, the proxy servers and the proxy API are the
// program of cmd/cluster-proxy in processes of their own, installed by the chart, run by the lab
// with the accounts, arguments and rights that they have on a cluster. Agents are package
// proxyagent with the arguments and the CA of their ManifestWork; each has a certificate that the
// addon manager approved and signed, asked for through the hub in the name of the cluster's own
// OCM agent, and connections of its own. Users are kubectl, the plugin and HTTP clients.
//
// # What is not
//
//   - 625 agents share a process, so what a process takes for itself is missing from what an
//     agent takes.
//   - OCM's controllers and klusterlets do not run. A stand-in makes ManagedClusters, addons
//     and their configuration references, asks for certificates, and writes the status of
//     ManifestWorks and addons (ocm.go, klusterlet.go). OCM's own load on the hub is missing.
//     Agents do not restart when their Deployment changes.
//   - The managed kube-apiservers are one small server a process, with two pods for each
//     cluster (managed.go).
//   - Agents find the proxy servers by a DNS of their own, which leads to a balancer process
//     each (balancer.go). Twelve source addresses stand for 625 clusters.
//   - Proxy servers reach each other at one address, which leads to any of them; on a cluster they
//     know each.
//   - Everything shares the machine's processors, so times are longer than on a hub of several
//     nodes, and CPU time is what to compare.
//
// # Reading the table
//
// "per cluster" is the difference to the same process before there was any cluster. growth
// compares the two largest columns: the power of the number of clusters with which a figure
// grows, flat below 0.25, linear up to 1.15. A figure per cluster is linear as a whole
// if it is flat here.
//
// # Files
//
//	main.go         flags; runs the groups of rows
//	world.go        world: brings everything up and down
//	hub.go          the pods of the hub, their metrics, what processes take
//	ocm.go          standIn: OCM's controllers
//	klusterlet.go   standIn: a cluster's klusterlet
//	child.go        the processes that simulate, and how they are spoken to
//	agents.go       one of them: agents
//	managed.go      the kube-apiservers of their clusters
//	balancer.go     another: the load balancer before the proxy servers
//	users.go        users of the hub, and their traffic
//	rows.go         the groups of rows; those of the addon manager and of idle processes
//	rowsservers.go  rows of the proxy servers
//	rowsca.go       rows of a change of the CAs
//	rowsapi.go      rows of the proxy API
//	table.go        the table, with columns of several runs
package main
