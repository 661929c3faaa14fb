// Package dial holds what every process needs to dial, and to go on dialing.
//
// StaleDialer dials hosts by name, and goes on doing so while DNS does not answer:
// the address that a name led to last is better than none, as RFC 8767 (serve-stale)
// has it for resolvers. Thus a cluster that has lost its DNS keeps its tunnels. It
// never decides whom to trust: the peer shows a certificate for the name.
//
// Jitter and FullJitter are the backoff between attempts: exponential, with full
// jitter, so that a thousand agents that lost a server together do not come back
// together.
//
// TCP tunes connections, so that a peer that is gone is noticed in time and little
// waits in the kernel to be sent. Its comment has the reasons.
//
// Files: stale.go has the dialer, backoff.go the delays, tcp.go the settings of
// TCP, usertimeout_linux.go gives up peers that acknowledge nothing, unsent_linux.go
// bounds what waits in the kernel.
package dial
