// Package proxyconfig reconciles ManagedProxyConfiguration into what runs on the
// hub: the proxy servers' Deployment, their Services, the certificates (package
// certificates), and in PortForward mode the little that agents may do at the
// hub's kube-apiserver.
//
// The admission policy that keeps these agents to the pods of Deployment
// cluster-proxy is the chart's: who may write admission policies could refuse
// everything on the hub, and the addon manager has no such right.
//
// A reconciliation reads, checks, builds what is desired with functions that do
// no I/O (desired.go), applies it server-side, and writes the status. What a
// configuration asks for and cannot have is said in the condition
// ConfigurationValid, with the field and what is allowed; nothing is applied
// then, so that what worked goes on working.
//
// Every object has the configuration as owner and goes with it, except the CAs.
//
// Conditions say until when each certificate is valid, whether the CAs can be had
// from where the signer says, and how far a rotation is and whom it waits for. The
// same is in metrics, and each phase of a rotation is an event.
package proxyconfig
