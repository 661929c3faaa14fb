// Package ownerpolicy is what a managed cluster's owner allows requests of the hub to
// do. The hub has no part in it: the owner writes ConfigMap cluster-proxy-owner-policy
// in the agent's namespace, and the addon never does.
//
//	apiVersion: v1
//	kind: ConfigMap
//	metadata:
//	  name: cluster-proxy-owner-policy
//	  namespace: open-cluster-management-cluster-proxy
//	data:
//	  policy.yaml: |
//	    readOnly: true
//	    noStreams: true
//	    noSecrets: true
//	    noMetrics: true
//	    noIndex: true
//	    allowedReservedNames: ["system:masters"]
//
// Caps apply to all users of the hub, whatever their rights are, and only restrict. A
// cap, but for noMetrics and noIndex, which are about the agent itself, also forbids connections with
// TLS end to end to the kube-apiserver, because the agent cannot see the requests on them.
//
// The agent reads the policy again while it runs. Without a ConfigMap nothing is
// capped. While the ConfigMap is invalid, the agent refuses every request: the owner
// meant to cap something, but it is unknown what.
//
// A policy applies to new requests and new connections. A stream or a connection with
// TLS end to end that was open before continues until it ends or the agent restarts. The stream of
// rows to the fleet index ends within seconds of noIndex.
//
// Limits: users who may change Deployments may read Secrets by way of a pod, so
// noSecrets is of little use without readOnly and noStreams. And the policy does
// not bind OCM's work agent, which applies what the hub's administrators ask
// for with rights of its own.
//
// Files: policy.go decides, file.go reads the policy and follows its changes.
package ownerpolicy
