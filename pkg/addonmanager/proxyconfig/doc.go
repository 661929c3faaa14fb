// Package proxyconfig reconciles ManagedProxyConfiguration into what runs on the
// hub: the proxy servers' Deployment, their Services, the certificates (package
// certificates), and in PortForward mode the little that agents may do at the
// hub's kube-apiserver.
//
// The admission policy that keeps these agents to the pods of Deployment
// cluster-proxy is the chart's: an account that may write admission policies could refuse
// everything on the hub, and the addon manager has no such right.
//
// A reconciliation reads, checks, builds what is desired with functions that do no I/O
// (desired.go), applies it server-side, and writes the status. If a configuration is
// invalid, the condition ConfigurationValid names the field and what is allowed, and
// nothing is applied: what worked before keeps working. Settings of upstream that have
// no effect here are accepted, and named in the condition ConfigurationIgnored and in
// an event.
//
// # Coming from OCM's own cluster-proxy
//
// Upstream's agents have the same certificate on all clusters and declare their cluster
// themselves. A proxy server of this release refuses them: one could pose as another,
// and neither the certificate nor anything on the hub tells them apart. Upstream's
// proxy servers therefore stay, with upstream's user servers before them, until the
// agents of this release are connected (move.go):
//
//   - the Deployment keeps its name. Its minReadySeconds holds upstream's pods beside
//     the first one of this release;
//   - the Service for clients leads to upstream's pods alone, by their
//     pod-template-hash, and the load balancer for agents to those of this release;
//     upstream's agents have their connections. Where both are one Service, behind
//     an address that is published elsewhere, agents wait for the next step;
//   - when the agents of all clusters answer at a proxy server of this release
//     (certificates.AgentChecker, by the Service of peers), or no more came for 15
//     seconds, or a minute has passed, the proxy APIs of this release get a Service that
//     leads to its proxy servers. A proxy API that finds upstream's alone is not ready,
//     so upstream's user servers stay until then;
//   - when upstream's user servers are gone, or after 20 seconds, clients are moved once
//     and for all, and upstream's proxy servers end. In between both releases serve:
//     upstream's agents go on for 90 seconds beside those of this release. Where agents
//     come with the clients, proxy APIs do not come before.
//
// Upstream's addon manager cannot change these objects: Helm has removed its rights
// (the chart's rbac.yaml). The same holds for this one after a rollback. Services have
// upstream's numbers as target ports, because upstream does not restore them; one that
// is rolled back in the middle of the move leads to pods of this release, until it is
// deleted.
//
// Every object except the CAs has the configuration as owner and is removed with it.
//
// Conditions say until when each certificate is valid, whether the signer's CAs are
// available, how far a rotation is and which clusters it waits for. Metrics have the
// same, and each phase of a rotation is an event.
//
// # Files
//
//	reconcile.go   one reconciliation, and what starts one
//	desired.go     the objects that are desired; no I/O
//	deployment.go  the Deployment among them
//	apply.go       server-side apply, and the removal of what is not desired
//	move.go        the move from upstream's proxy servers
//	rotation.go    which certificates there are, where CAs come from, and the report of rotations
//	reconciler.go  what a Reconciler needs, and what its objects have in common
//	entrypoint.go  the address that agents dial
//	validate.go    defaults and checks of a configuration
//	args.go        the arguments of proxy servers, in one form, and for how long pods may drain by
//	               them
//	pods.go        settings of the proxy servers' pods from the hub's chart
//	metrics.go     Metrics
package proxyconfig
