// Package policy decides what an agent dials. It is a pure function of what was
// asked for and of the agent's own configuration: no name is resolved, nothing
// is dialed and nothing is logged here.
//
// The hub asks for a network and an address. The address is a word of the
// tunnel, not of the managed cluster's network: the cluster's name stands for
// its kube-apiserver, the handler's host name for the agent's own handler. The
// answer is the address to dial, which comes from the agent's configuration and
// never from the request. Everything else is denied, so there is no list of bad
// addresses to be complete.
//
// Services are reached through the handler only. Their addresses come from DNS,
// which others may control, so CheckAddresses says which of them are
// never dialed, listed Service or not. The caller resolves, asks here, and dials
// the address that was looked at.
//
// Files: policy.go decides about dials, and about addresses of Services.
package policy
