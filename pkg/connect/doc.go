// Package connect turns HTTP requests into connections. It has both ends of method
// CONNECT: Accept answers a request and returns the connection that follows, Ask sends
// one, and Join copies between two connections. Upgrade makes httputil.ReverseProxy,
// which copies by itself, end broken connections as Join does.
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
//   - TLS that ends without close_notify was cut off. crypto/tls returns io.EOF for it;
//     TLS connections that may be joined are therefore made BelowTLS. A client that
//     closes its socket without close_notify counts as one that died.
//   - HTTP/2 has no half-close that a handler can send: a stream ends with its
//     handler. When the target ends, the client is told by the end of the stream,
//     and the target is aborted unless the client had ended, too.
//
// Bytes that the backend of an upgrade has sent before it closed reach the user, also if
// bytes of the user's cannot be delivered any more.
//
// Two cases are out of reach: konnectivity's own servers and agents end a target's
// connection cleanly whatever happened, and clients of SPDY (kubectl exec with
// WebSockets turned off) take a reset for a clean end. They do so without a proxy, too:
// when a kube-apiserver closes its connection behind a command's output, and the end of
// the user's input reaches it after that, its kernel throws away what it has not sent.
//
// Ask reads at most httprelay.MaxHeaderBytes of an answer's headers.
//
// Files: connect.go has Accept and Ask, join.go Join, Abort and BelowTLS, upgrade.go
// upgrades, queue.go a net.Listener for connections that come from within the
// process.
package connect
