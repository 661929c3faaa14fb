// Package proxyconfig reconciles ManagedProxyConfiguration into what runs on the
// hub: the proxy servers' Deployment, their Services, the certificates (package
// certificates), and in PortForward mode the little that agents may do at the
// hub's kube-apiserver.
//
// The admission policy that keeps these agents to the pods of Deployment
// cluster-proxy is the chart's: an account that may write admission policies could refuse
// everything on the hub, and the addon manager has no such right.
//
// A reconciliation reads, checks, builds what is desired with functions that do
// no I/O (desired.go), applies it server-side, and writes the status. What a
// configuration asks for and cannot have is said in the condition
// ConfigurationValid, with the field and what is allowed; nothing is applied
// then, so that what worked goes on working. Settings of upstream that mean nothing
// here are taken, and said in the condition ConfigurationIgnored and an event.
//
// # Coming from OCM's own cluster-proxy
//
// Upstream's agents have a certificate that is the same for all clusters, and what
// cluster one speaks for is what it says. A proxy server of this release lets none
// of them in: one could pose as another, and neither its certificate nor anything
// that the hub keeps tells them apart. So upstream's proxy servers stay, with
// upstream's user servers before them, until the agents of this release are
// connected (move.go):
//
//   - the Deployment keeps its name. Its minReadySeconds holds upstream's pods beside
//     the first one of this release;
//   - the Service for clients leads to upstream's pods alone, by their
//     pod-template-hash, and the load balancer for agents to those of this release;
//     upstream's agents have their connections. Where both are one Service, behind
//     an address that is published elsewhere, agents wait for the next step;
//   - when the agents of all clusters answer at a proxy server of this release
//     (certificates.AgentChecker, by the Service of peers), or no more came for 15
//     seconds, or a minute has passed, clients are led over, once and for all, and
//     upstream's pods end. A proxy API that finds upstream's proxy servers is not
//     ready until then, so upstream's user servers stay as well.
//
// Upstream's addon manager does not fight for these objects: Helm has taken its
// rights away (the chart's rbac.yaml). So it is with this one after a rollback.
// Services have upstream's numbers as target ports, because upstream does not
// restore them; one that is rolled back in the middle of the move leads to pods of
// this release, until it is deleted.
//
// Every object has the configuration as owner and goes with it, except the CAs.
//
// Conditions say until when each certificate is valid, whether the CAs can be had
// from where the signer says, and how far a rotation is and which clusters it waits for. The
// same is in metrics, and each phase of a rotation is an event.
//
// # Files
//
//	reconciler.go  Reconciler: one reconciliation, and what starts one
//	validate.go    defaults and checks of a configuration
//	desired.go     the objects that are desired; no I/O
//	args.go        the arguments of proxy servers, in one form
//	pods.go        settings of the proxy servers' pods from the hub's chart
//	entrypoint.go  the address that agents dial
//	apply.go       server-side apply, and the removal of what is not desired
//	move.go        the move from upstream's proxy servers
//	rotation.go    where CAs come from, and the report of rotations
//	metrics.go     Metrics
package proxyconfig
