// Package dial holds what every process needs to dial, and to keep dialing while things
// fail.
//
// StaleDialer dials hosts by name, also while DNS does not answer: it then uses the
// address that the name had last, as RFC 8767 (serve-stale) allows resolvers to, and
// goes on to wait for DNS, which may be slow and the address another one by now. A
// cluster that has lost its DNS thus keeps its tunnels. It never decides whom to trust:
// the peer shows a certificate for the name.
//
// Jitter and FullJitter are the backoff between attempts: exponential, with full
// jitter, so that a thousand agents that lost a server do not all come back at once.
//
// TCP tunes connections, so that a peer that is gone is noticed in time and little
// waits in the kernel to be sent. Its comment has the reasons.
//
// Files: stale.go has the dialer, backoff.go the delays, tcp.go the settings of
// TCP and how one direction ends, usertimeout_linux.go gives up peers that acknowledge nothing, unsent_linux.go
// bounds what waits in the kernel.
package dial
