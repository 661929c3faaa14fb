// Package ownerpolicy is what a managed cluster's owner says about requests that
// come through the hub. The hub has no part in it: the owner writes ConfigMap
// cluster-proxy-owner-policy in the agent's namespace, the addon never does.
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
//	    allowedReservedNames: ["system:masters"]
//
// Caps apply to everybody who comes through the hub, whatever their rights are,
// and only take away. A cap also closes the way on which the agent cannot look
// into requests: connections with TLS end to end to the kube-apiserver.
//
// The agent reads the policy again while it runs. No ConfigMap caps nothing. One
// that cannot be understood lets nothing through until it is mended: the owner
// meant to cap something, but it is unknown what.
//
// A policy is for new requests and new connections: a stream, or a connection with
// TLS end to end, that was open before goes on until it ends or the agent is
// restarted.
//
// Limits: users who may change Deployments may read Secrets by way of a pod, so
// noSecrets is of little use without readOnly and noStreams. And the policy does
// not bind OCM's work agent, which applies what the hub's administrators ask
// for with rights of its own.
//
// Files: policy.go decides, file.go reads the policy and follows its changes.
package ownerpolicy
