// Package connect is about HTTP requests that become connections. Of method
// CONNECT it has both ends: Accept answers a request and returns the connection
// that follows, Ask sends one, and Join copies between two connections. Upgrade
// does for httputil.ReverseProxy, which does the copying there, what Join does
// when something breaks.
//
// # Ends keep their meaning
//
// A clean end of one direction is passed on as a half-close where the other side
// has one (TCP, TLS and carriers do). Anything else aborts both connections: what
// was cut off never looks like a clean end, in either direction.
//
//   - An aborted carrier is reset (RESET), so is a stream of HTTP/2 (RST_STREAM).
//   - An aborted TCP connection is reset. TLS ends without close_notify, since the
//     reset comes from the socket below.
//   - TLS that ends without close_notify was cut off. crypto/tls says io.EOF of
//     it; TLS connections that may be joined are therefore made BelowTLS. A
//     client that closes its socket without a word counts as one that died.
//   - HTTP/2 has no half-close that a handler can send: a stream ends with its
//     handler. When the target ends, the client is told by the end of the stream,
//     and the target is aborted unless the client had ended, too.
//
// Out of reach: konnectivity's own servers and agents tell a target a clean end
// whatever happened, and clients of SPDY (kubectl exec where WebSockets are
// turned off) take a reset for one.
//
// Ask reads at most httprelay.MaxHeaderBytes of an answer's headers.
//
// Files: connect.go has Accept and Ask, join.go Join, Abort and BelowTLS, upgrade.go
// upgrades, queue.go a net.Listener for connections that come from within the
// process.
package connect
