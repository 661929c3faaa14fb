// Package pki is the only place of this repository that makes, parses,
// verifies, renews or reloads certificates. Nothing else imports crypto/x509.
//
// # Making certificates
//
// There are two CAs (see package identity): the hub CA for serving and client
// certificates on the hub, and the agent CA for agents and nothing else. A CA
// is a KeyPair in a Secret. New CAs and leaves have ECDSA P-256 keys, because
// a handshake with them costs a fraction of one with RSA; the RSA-2048 CA that
// an older cluster-proxy left in the Secret is accepted as it is, so that an
// upgrade does not cut off any agent.
//
// A certificate is built from a Leaf, never from what a requester sent: of a CSR only
// the public key is used, after its self-signature and its strength were checked. No
// subject, SAN, usage or extension of a CSR can reach a certificate. ParseRequest
// returns everything that a CSR asks for, for the decision whether to approve it.
//
// For rotations, Fingerprint tells two CAs apart, and ProveHTTP2 makes a handshake that
// proves what a peer presents and trusts now.
//
// # Using certificates
//
// A Reloader holds a certificate, its key and a CA bundle from files, and returns TLS
// configurations. It looks at the files every three seconds and reads them when one was written
// or replaced: a renewed Secret takes effect on the next handshake without a restart. A
// change that does not parse (half written, key of another certificate) is logged, and the
// last good state stays in use.
//
// Servers get one configuration for their lifetime, which asks the Reloader for
// each handshake. Clients ask for a configuration per dial, which is cheap.
// TLS sessions are resumed, but never across a reload: a session made under a
// CA that has since been removed must not outlive it, nor must a client's old
// identity.
//
// TLS is 1.3. OCM's ConfigMap ocm-tls-profile, mounted as a folder, may say otherwise,
// and is read again like the certificates: both belong to one state of a Reloader, so a
// change of it ends resumption of sessions too. Flags that set the same take
// precedence. A profile that asks for less than TLS 1.2, or for suites that Go holds
// insecure, gets the least that is secure.
//
// Certificates are dated back by five minutes, so that clocks may differ by that much.
// If a certificate fails because of the time, Explain names clock skew as the cause;
// HandshakeReason does the same for a metric.
//
// A server without a bundle trusts no client; it never falls back to the roots of the
// operating system.
//
// # Connections that exist
//
// TLS verifies a certificate once. Recheck reports, for connections that stay open,
// whether a new handshake with that certificate would still succeed: it would not after
// the certificate has expired, or once the CA that signed it has left the bundle.
//
// # Who is on the other end
//
// PeerAgent and PeerRole read names from the verified chain only. A connection
// without one is an error, whatever certificate the peer may have shown.
//
// # Files
//
//	renewal.go     when to issue a certificate again
//	rotation.go    what tells two CAs apart, and ProveHTTP2
//	config.go      the TLS configurations of a Reloader
//	reloader.go    Reloader: files, read again when they change
//	recheck.go     connections that exist
//	parameters.go  versions and cipher suites, and OCM's TLS profile
//	peer.go        who is on the other end
//	explain.go     why a handshake failed
//	ca.go          CA, Leaf and KeyPair: making certificates
//	request.go     CSRs: what they ask for, and signing them
package pki
