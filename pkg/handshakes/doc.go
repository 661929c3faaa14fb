// Package handshakes makes the TLS handshakes of a port, side by side but not all
// at once. Any client can make a port work on a ClientHello, and a thousand peers that
// reconnect together would take the processor from what is served already.
//
// Options.Limit handshakes are worked on at a time; one that waits for its peer does
// not count, so that neither distance nor a silent peer delays the others. The order is
// (turns.go, lobby.go):
//
//   - Connections that users wait for, which Expect announces, have turns of their
//     own. They are known by their source.
//   - A handshake that was begun is ended before another one begins, and its time
//     runs from its first turn.
//   - First flights hold all turns but one. Sources that a peer came from before
//     whose handshake was completed get three of four of those. A source is an IPv4
//     address or an IPv6 /64.
//   - Sources take turns. Of one source the oldest connection goes first, so that
//     a fleet behind one address makes each handshake once; or the newest, while
//     the oldest has waited for 5 s and more cannot be in time.
//   - There are at most 8,192 connections without a complete handshake of known
//     sources and as many of others, half of them of one source. Beyond that the
//     oldest makes room.
//
// Where peers must show a certificate, as on the proxy server's ports, a complete
// handshake is one with a certificate that is accepted. On the proxy API's port, where
// they need not, a flood can become known, by the work of whole handshakes; then only
// the turns of sources limit it.
//
// Files: handshake.go makes a handshake, lobby.go knows the connections that wait,
// turns.go says which is next, listener.go accepts.
package handshakes
