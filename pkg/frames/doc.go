// Package frames follows the frames of an upgraded connection (exec, attach, port-forward)
// that somebody else relays, and makes the last ones of it: those by which a user learns
// why the connection ends.
//
// It sees each byte once, in both directions, and changes none. It knows where a frame
// ends, which streams are open, and what they are for:
//
//   - SPDY/3.1: the user's SYN_STREAM frames name the streams, in headers that are
//     compressed with a state that lasts for the connection. They are read by the framer
//     of moby/spdystream, with limits. A stream is forgotten when the cluster ends it, or
//     one side resets it.
//   - WebSocket with the protocols of remote commands (v5.channel.k8s.io and before): the
//     first byte of a message is its channel.
//   - WebSocket that carries SPDY (SPDY/3.1+portforward.k8s.io): both, one in the other.
//   - Any other WebSocket has an end with a reason, and nothing else is known of it.
//
// # Payload
//
// Observe hands out what is sent on the streams of a command: of SPDY the data frames, by the
// kinds of their streams; of WebSocket the messages, by their channels, in frames or pieces of
// any size, as bytes or base64. A close signal of version 5 is no payload. Some frames
// cannot be handed out as what the user sees, which is said once: compressed messages, frames of kinds that
// this package does not know, data of streams that the user has not opened, and data against a
// stream's direction: output that the user sends, input that the cluster sends. A stream that the
// user resets is still followed, because what was sent before can arrive. Nothing is guessed:
// whoever observes decides what to do about a connection that cannot be read.
//
// # Limits
//
// Payload is passed on in the pieces that come and never kept, whatever length a frame claims. Of control frames of
// SPDY 16 KiB are kept, and of 1,000 streams the names. Beyond that, and after a frame that
// cannot be understood, the Follower is lost: it says nothing any more, and has no Farewell.
// The connection goes on.
//
// # Farewell
//
// A frame can only follow a whole one. Until says where the next one ends, and Farewell
// is what may be written there: on each stream for errors a Status (exec and attach since
// version 4) or text, then the end of all streams. It is empty if the cluster has ended all of
// them: then the user was sent everything. Nothing may follow it.
//
// # Files
//
// payload.go has what is observed, follower.go Follower, spdy.go and websocket.go the frames of
// each protocol.
package frames
