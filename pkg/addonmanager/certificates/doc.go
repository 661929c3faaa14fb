// Package certificates keeps the addon's CAs and certificates on the hub in
// Secrets.
//
// There are two CAs, each in a Secret with its key that nobody but the addon
// manager reads. The hub CA (cluster-proxy-signer, upstream's name, whose RSA CA
// is taken over as it is) signs serving and client certificates on the hub; the
// agent CA (cluster-proxy-agent-signer) signs agents' certificates and nothing
// else. Both are made once. They have no owner, so they survive an uninstall,
// and agents reconnect after a re-install without a new certificate. A Secret
// that is there but cannot be used is an error and is never replaced: that would
// cut off every cluster at once.
//
// Everything else is issued again when its names change, when the CA changes, or
// when a third of its life is left. Two more Secrets hold the CAs without keys,
// for those who verify.
package certificates
