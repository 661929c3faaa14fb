// Package certificates keeps the addon's CAs and certificates on the hub in
// Secrets.
//
// There are two CAs, each in a Secret with its key that only the addon
// manager reads. The hub CA (cluster-proxy-signer, upstream's name, whose RSA CA
// is taken over as it is) signs serving and client certificates on the hub; the
// agent CA (cluster-proxy-agent-signer) signs agents' certificates and nothing
// else. Neither may be able to stand in for the other: two CAs with one key, or
// of which one signed the other, are refused. They have no owner, so they survive
// an uninstall, and agents reconnect after a re-install without a new
// certificate. A Secret that is there but cannot be used is an error and is never
// replaced: that would cut off every cluster at once.
//
// Everything else is issued again when its names change, when the CA changes, or
// when a third of its life is left. Two more Secrets hold the CAs without keys,
// for verifiers.
//
// # Where CAs come from
//
// They are made here, or a CASource returns them: Secrets that users keep
// (Provided), or cert-manager (CertManager). A CASource's CA is copied, because the
// one before must be able to sign until the next one is trusted. So there is one
// way to another CA, whoever asks for it: the annotation on the configuration, the
// last third of a CA's life, a Secret of the user's that has changed, a renewal of
// cert-manager's, or a signer of type Provided or CertManager where there was
// another. A change to SelfSigned goes on with the CA that is there.
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
// What the CA's Secret holds is the phase, so that a manager that restarts, and a
// hub that is restored from a backup, go on where they were.
//
// Going on too early would cut clusters off, so nothing that could be stale is
// believed: no report, no ManifestWork's status, no time that has passed. The
// manager asks each cluster's agent itself (AgentChecker), in a TLS handshake through the
// tunnel:
//
//   - the hub CA: the agent must accept a client's certificate of the new CA. It
//     must before that CA signs what agents verify, and again before the old one
//     is dropped.
//   - the agent CA: the agent must show a certificate of the new CA, with its
//     cluster's name, before the old one is dropped.
//
// A cluster that is away does not answer, so the rotation waits for it for as long
// as it takes, and the condition names it. To stop waiting, remove the
// addon from that cluster. No cluster is waited for when the old CA has expired, because
// none can be using it. What was proven counts for one phase only, and is
// forgotten when the manager restarts. After the last proof a phase lasts for the
// time that pods may take to read a changed Secret (Params.Propagation), for other
// pods of the same clusters and for those on the hub, which are not asked. That time
// begins when the last bundle or certificate that the phase asks for was written,
// and no old CA is dropped while a certificate cannot be issued again.
//
// Agents get another certificate at once, and not when the old one ends: see
// agentaddon's unitsOf.
//
// # A restored hub
//
// Old Secrets that come back are simply the CAs. Agents are told of the hub CA by
// OCM, which does not need the tunnel, and ask for certificates of the agent CA
// because the subject that they are to have is another. No cluster joins again.
//
// # Files
//
//	ensure.go        Ensure: everything that is kept, from Params to Result
//	store.go         Secrets: their names, and what others read in them
//	serving.go       the proxy API's serving certificate
//	rotate.go        CAs, RotationChecker, and the next step of a rotation
//	authority.go     one CA in its Secret, with its phase
//	agentchecker.go  AgentChecker: asks agents through the tunnel
//	provided.go      CAs that users keep in Secrets
//	certmanager.go   CAs that cert-manager keeps
package certificates
