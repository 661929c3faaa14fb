// Package certificates keeps the addon's CAs and certificates on the hub in
// Secrets.
//
// There are two CAs, each in a Secret with its key that only the addon manager reads.
// The hub CA (cluster-proxy-signer, upstream's name, whose RSA CA is taken over as it
// is) signs serving and client certificates on the hub; the agent CA
// (cluster-proxy-agent-signer) signs agents' certificates and nothing else. Neither may
// stand in for the other: two CAs with the same key, or one of which signed the other,
// are refused. They have no owner, so they survive an uninstallation, and agents
// reconnect after the next installation without a new certificate. A Secret that exists
// but cannot be used is an error and is never replaced, because that would cut off
// every cluster at once.
//
// Everything else is issued again when its names change, when the CA changes, or
// when a third of its life is left. Two more Secrets hold the CAs without keys,
// for verifiers.
//
// # Where CAs come from
//
// They are made here, or a CASource returns them: Secrets that users keep (Provided),
// or cert-manager (CertManager). A CASource's CA is copied, because the previous one
// must be able to sign until the next one is trusted. All changes of a CA therefore
// take the same way, whatever causes them: the annotation on the configuration, the
// last third of a CA's life, a Secret of the user's that has changed, a renewal of
// cert-manager's, or a signer of type Provided or CertManager where there was another.
// A change to SelfSigned keeps the CA.
//
// # Rotation
//
// A rotation is staged, for each CA by itself (authority.go, rotate.go):
//
//	Stable        one CA is trusted, and signs
//	Distributing  the next one is trusted too, and signs nothing yet
//	Reissuing     the next one has become the CA and everything is issued again;
//	              the one before is still trusted, and its key is gone
//
// The contents of the CA's Secret are the phase, so a manager that restarts, or a hub
// that is restored from a backup, continues where it was.
//
// A step that is taken too early would cut off clusters, so the manager relies on
// nothing that could be stale: no report, no status of a ManifestWork, no time that has
// passed. It asks each cluster's agent itself (AgentChecker), in a TLS handshake
// through the tunnel:
//
//   - the hub CA: the agent must accept a client's certificate of the new CA. It
//     must before that CA signs what agents verify, and again before the old one
//     is dropped.
//   - the agent CA: the agent must show a certificate of the new CA, with its
//     cluster's name, before the old one is dropped.
//
// A cluster that is unreachable does not answer, so the rotation waits for it without
// limit, and the condition names it. To stop waiting, remove the addon from that
// cluster. No cluster is waited for when the old CA has expired, because none can be
// using it. A proof counts for one phase only, and is forgotten when the manager
// restarts. After the last proof a phase lasts for the time that pods may take to read
// a changed Secret (Params.Propagation), for other pods of the same clusters and for
// those on the hub, which are not asked. That time begins when the last bundle or
// certificate that the phase asks for was written, and no old CA is dropped while a
// certificate cannot be issued again.
//
// Agents get a new certificate at once, not when the old one expires: see agentaddon's
// unitsOf.
//
// # A restored hub
//
// Old Secrets that come back are simply the CAs. OCM, which does not need the tunnel,
// delivers the hub CA to agents, and they ask for certificates of the agent CA because
// their expected subject changes. No cluster has to join again.
//
// # Files
//
//	ensure.go        Ensure: everything that is kept, from Params to Result
//	rotate.go        the next step of a rotation
//	agentchecker.go  AgentChecker: asks agents through the tunnel
//	sources.go       CAs that cert-manager keeps, or users in Secrets
//	store.go         what others read in Secrets
//	authority.go     one CA in its Secret, with its phase
//	params.go        Params: CAs, Secrets and their names, and RotationChecker
package certificates
