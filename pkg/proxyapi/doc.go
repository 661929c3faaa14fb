// Package proxyapi is the HTTPS endpoint for users of managed clusters. It is an API
// server of the hub without a store: the filters of k8s.io/apiserver find out who
// calls, ask the hub whether they may, and write the audit log; then a relay sends the
// request to the cluster's agent. The relay stands before the REST layer of
// k8s.io/apiserver and is never a rest.Connecter, which refuses dry-run and reads query
// parameters that are the managed cluster's.
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
//     which the hub's kube-apiserver sends here by an APIService. Its front proxy
//     decodes and encodes paths anew, so only the other endpoints are byte for byte. It
//     answers redirects with 502, and OPTIONS with 403, having no verb for it.
//   - views: /@<view>/<path> in the direct endpoint ("@" is in no cluster's name, and may be
//     written %40), and .../v1alpha1/fleetviews/<view>/proxy/<path> in the aggregated one.
//     The resource fleetviews of this group is not in discovery: it would hide the
//     FleetViews of group proxy.open-cluster-management.io from "kubectl get fleetviews".
//   - Karmada's (--karmada-api): /apis/cluster.karmada.io/v1alpha1/clusters/<cluster>/proxy/<path>
//     and .../clusters/*/proxy/<path>, a view of all clusters, and
//     /apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/<path>, the view that all
//     ResourceRegistries make together.
//   - CONNECT: CONNECT <cluster>:443 is a connection to the cluster's kube-apiserver
//     that is not looked into, and CONNECT <service>.<ns>.svc.<cluster>:<port> one to a
//     Service that the allowlist has with protocol tcp.
//
// Services of the hub's allowlist are at
// /<cluster>/api/v1/namespaces/<ns>/services/[<scheme>:]<service>[:<port>]/proxy-service/<path>,
// in the first three endpoints.
//
// With --ui there is a page for people at /ui/ (package ui). It is served like probes, without
// a credential and without a filter, and contains nothing: what it shows it asks of the
// aggregated API, and of FleetViews at their path on the hub, with the right that the hub asks for.
//
// # What fails how
//
// Every error is a metav1.Status that says what to do. agentclient.StatusOf has the code and the
// text of what happened on the way, and package status the Reason of a code. Clients of client-go repeat a request up to
// ten times when it is refused with Retry-After, and kubectl asks for discovery five times. A
// second rides out the restart of an agent. A cluster that has been away for longer, and proxy
// servers that have, are answered without Retry-After (agentclient.IsAway).
//
// Discovery of client-go throws the Status away. The message of a request that is for no
// resource is therefore in a Warning, too, which kubectl shows (scope.Warn).
//
// Answers do not tell which clusters there are. A cluster that a user of the hub has no
// right to is 403 whether there is one or not. A token that the hub does not know is
// 401, in the same words, whether the cluster refuses it, cannot be reached, or does not
// exist (filter.Filters); only a token that this replica has seen a cluster
// accept is told more of that cluster. Three things remain: how long an answer takes, answers
// with which a cluster's own kube-apiserver refuses to serve anyone (5xx), and Services,
// which authenticate for themselves.
//
// Requests with unverified credentials are rate limited, and the hub's past answers
// stand while it cannot be asked, for --hub-outage-grace: see package hubaccess/outage. Package
// agentclient says what is repeated when a connection to an agent breaks.
//
// # Readiness
//
// Ready means that this process can answer: it knows the clusters, has a certificate, and
// has tried to reach its peers.
// Without a proxy server it still is, and answers requests to clusters with 503; a
// metric (proxy_server_reachable) and the log say so. Were it not, all replicas would
// leave the Service at once and the APIService of the aggregated API would be
// unavailable, which stalls the hub's own garbage collection and the deletion of its
// namespaces.
//
// # Graceful shutdown
//
// On the first signal /readyz fails, and new requests are served for the minimum drain
// duration. Then the listener closes, watches end as if their time were up, and requests
// in flight, upgraded connections included, may go on for --graceful-shutdown-timeout. At
// the end the other replicas get what they need to go on with watches of views.
//
// # Out of scope
//
// Bodies are not in the audit log: they are streamed. The cluster's RBAC decides what a
// user may do there, as the agent impersonates the user.
//
// # Files
//
//	server.go   listens, serves, drains
//	handler.go  one request from its first filter to its end
//	parts.go    what a Server asks the hub with, and runs in the background
//	prober.go   whether a proxy server can be reached
//	options.go  flags
package proxyapi
