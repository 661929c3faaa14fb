// Package proxyapi is the HTTPS endpoint for users of managed clusters. It is an API server of the
// hub without a store: the filters of k8s.io/apiserver find out who calls, ask the hub whether they
// may, and write the audit log; then a relay sends the request to the cluster's agent. The relay is
// no rest.Connecter of k8s.io/apiserver: that refuses dry-run and reads query parameters that are
// the managed cluster's.
//
// # The way of a request
//
// Each package has one part of it, and its doc.go the reasons:
//
//	scope     what the request wants: a cluster, a view, a Service, the proxy API itself;
//	          the limits that it counts for; what an error is as a metav1.Status
//	filter    whether it may: who calls, what the hub says, which streams end later
//	relay     the way to one cluster's agent, and the answer back
//	view      one request to many clusters, by package fleetview
//	session   streams that are open, and their recordings
//	apigroup  the kinds of the aggregated API, Karmada's among them
//	replica   the other replicas of the proxy API
//	metrics   the numbers of all of them
//
// handler.go joins them to one chain. Below them are package route, which takes a request
// target apart byte for byte or refuses it, package hubaccess, which asks the hub, and
// package agentclient, which sends a request to an agent as a user.
//
// # Endpoints
//
// All of them lead through the same chain of filters; scope tells them apart.
//
//   - direct: /<cluster>/<path>, the URL of OCM's own cluster-proxy.
//   - host: <cluster>.<domain> as host.
//   - aggregated: /apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/<cluster>/proxy/<path>,
//     which the hub's kube-apiserver sends here by an APIService. Its front proxy encodes
//     paths anew (the other endpoints are byte for byte), and answers redirects with 502
//     and OPTIONS with 403.
//   - views: /@<view>/<path> in the direct endpoint ("@" is in no cluster's name, and may be
//     written %40), and .../v1alpha1/fleetviews/<view>/proxy/<path> in the aggregated one.
//   - Karmada's (--karmada-api): see package apigroup.
//   - CONNECT: CONNECT <cluster>:443 is a connection to the cluster's kube-apiserver
//     that is not looked into, and CONNECT <service>.<ns>.svc.<cluster>:<port> one to a
//     Service that the allowlist has with protocol tcp.
//
// Services of the hub's allowlist are at
// /<cluster>/api/v1/namespaces/<ns>/services/[<scheme>:]<service>[:<port>]/proxy-service/<path>,
// in the first three endpoints. With --ui there is a page at /ui/ (package ui).
//
// # What fails how
//
// Every error is a metav1.Status that says what to do. agentclient.StatusOf has the code and the
// text of what happened on the way, and package status the Reason of a code. client-go repeats a
// request that is refused with Retry-After up to ten times, which rides out the restart of an
// agent. A cluster that has been away for longer is answered without it (agentclient.IsAway).
// client-go throws the Status of discovery away: a Warning has the message too (scope.Warn).
//
// Answers do not tell which clusters there are. A cluster that a user of the hub has no
// right to is 403 whether there is one or not. A token that the hub does not know is
// 401, in the same words, whether the cluster refuses it, cannot be reached, or does not
// exist (filter.Filters); only a token that this replica has seen a cluster
// accept is told more of that cluster. Three things remain: how long an answer takes, answers
// with which a cluster's own kube-apiserver refuses to serve anyone (5xx), and Services,
// which authenticate for themselves. The hub's past answers stand while it cannot be asked, for
// --hub-outage-grace (package hubaccess/outage).
//
// # Readiness and graceful shutdown
//
// Ready means that this process can answer: it knows the clusters, has a certificate, and
// has tried to reach its peers. It stays ready without a proxy server, and answers 503
// (metric proxy_server_reachable): otherwise the APIService of the aggregated API would be
// unavailable, which stalls the hub's garbage collection and the deletion of its namespaces.
//
// On the first signal /readyz fails, and new requests are served for the minimum drain duration.
// Then the listener closes, watches end as if their time were up, and other requests may go on for
// --graceful-shutdown-timeout. At the end the other replicas get what they need to go on with
// watches of views.
//
// # Out of scope
//
// Bodies are not in the audit log. The cluster's RBAC decides what a user may do there.
//
// # Files
//
//	server.go   listens, serves, drains
//	handler.go  one request from its first filter to its end
//	parts.go    what a Server asks the hub with, and runs in the background
//	prober.go   whether a proxy server can be reached
//	options.go  flags
package proxyapi
