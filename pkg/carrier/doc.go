// Package carrier is the wire between hub and agents: one transport connection
// (TLS over TCP in production, anything that is a net.Conn in tests) that
// carries one tunnelled connection at a time and is used again for the next.
// spec.md is the protocol; this is the design of its implementation. The
// package knows nothing of Kubernetes or gRPC.
//
// # Who reads, who writes
//
// Two semaphores per Carrier say who may read from the transport and who may
// write to it; nothing else does I/O. The right to write is taken for one
// frame at a time. The right to read belongs to one of two:
//
//   - the watcher, a goroutine, whenever no tunnelled connection waits for
//     data: on an idle carrier (where any byte but an OPEN, and any end, closes
//     the carrier), while an OPEN is being answered, and after the peer's FIN
//     (where RESET and a lost transport must still be noticed);
//   - the Conn, from ACCEPT to the peer's FIN: its Read, WriteTo or Splice.
//
// The watcher releases the right when it reads ACCEPT, or the first frame after an
// ACCEPT was sent; the Conn returns it with the FIN.
//
// A dial should cost few goroutines and few wake-ups: a new goroutine has to grow its
// stack, and one that is woken by another may have to wake a processor. Splice and
// Relay therefore leave a function with the watcher, which copies in its own goroutine
// once the first frame has arrived and watches again after the FIN; and a watcher that
// reads OPEN answers it itself, while another one takes its place. A dial then costs a
// proxy server one new goroutine, and every frame is forwarded by the goroutine that
// was woken to read it.
//
// Nothing else takes either right: a Close that finds the right to write taken
// knows that a Write of the connection is blocked. A request that was answered
// leaves it alone, for example, though its handler may return much later.
//
// The state changes before the frame that announces the change is written,
// under the right to write. So the peer's reaction never arrives in an older
// state, and what this side writes in the new one queues behind the frame.
//
// # How connections end
//
//   - FIN from both sides: the carrier is idle. A Read ends with io.EOF after
//     the peer's FIN and never otherwise.
//   - Close before the peer's FIN: FIN is sent, up to 64 KiB are thrown away
//     and Config.Linger is waited for the peer's FIN, in the background; the
//     usual exchange, in which the peer closes in turn, keeps the carrier. If
//     the peer goes on sending, or stays silent: RESET (closed by peer).
//   - Close during a blocked Write: the transport is closed, since a RESET
//     cannot be put into the middle of a frame.
//   - Abort, a violation of the protocol, a broken transport: *Error, and the
//     carrier is closed, with RESET where a frame boundary allows it.
//   - A pausing reader may pause without limit. Only a peer that acknowledges nothing
//     of what it was sent is given up (dial.TCP).
//   - A connection that reads nothing because its other side is stuck checks its
//     transport every 10 s, and ends if that was reset or given up. A transport that
//     ended cleanly may still hold the last bytes of an upload, and stays.
//   - An Open whose context ends closes the carrier with RESET (canceled or
//     timed out). There is no frame for cancelling, so that an ACCEPT under way at
//     that moment can never answer the next OPEN.
//
// # Copying
//
// Write and ReadFrom put header and payload into one buffer and one write, of
// 64 KiB in all: four full TLS records. WriteTo moves payloads together, so
// that many small frames are one write to the target. Splice forwards whatever
// arrived in one write without waiting for the end of a frame, and reads
// headers only. Nothing is allocated per frame.
//
// Every carrier has a buffer of 2 KiB. The big ones are pooled, and are held
// while there is something in them: Splice and WriteTo wait for a frame with the
// small buffer and borrow a big one for the rest of a frame that fills it;
// ReadFrom waits until a TCP connection can be read from (Linux), and borrows one
// then. A connection that carries nothing, however much it has carried, holds
// none.
//
// Write deadlines: a frame of which a part was written counts as written, and
// the rest is sent before anything else. crypto/tls cannot write again after a
// timeout, so over TLS a Write that timed out is the last one; a deadline that
// has already passed is noticed before the transport is touched. So nettest's
// FutureTimeout and ConcurrentMethods, which write on after such a timeout, run
// over TCP and net.Pipe only; all others run over TLS as well.
//
// # Control sessions
//
// A Session is a carrier on which messages may come while it is idle, and a timer that
// pings a silent peer. Messages about carriers must not wait for a connection, so the
// first OPEN ends the session, and the dialing side makes another one. An idle peer then has
// one connection, which is both, where a session of its own beside an idle carrier would
// double what it costs. The watcher reads messages like other frames; whether one may be
// sent is decided under the right to write and the carrier's lock, so that none follows the
// OPEN. With peers that do not know of this, a session takes no OPEN. gRPC, which it takes
// the place of, costs each end seven goroutines and some 60 KiB.
//
// Out of scope: authentication (the transport is authenticated before it
// becomes a carrier), routing, name resolution and policy.
//
// # Files
//
//	session.go  a control session
//	serve.go    the answer to an OPEN
//	splice.go   joins two connections, frame by frame
//	copy.go     copies a connection's bytes, and notices a transport that broke unread
//	carrier.go  Dialed, Accepted, Open, and the same over TLS
//	watch.go    the reader of an idle carrier
//	conn.go     a tunnelled connection
//	close.go    its end
//	fail.go     the end of a carrier
//	lazyreader_linux.go, lazyreader_other.go
//	            wait for bytes without holding a buffer
//	scanner.go  reads frames, and what becomes one
//	control.go  messages of a control session
//	frame.go    frames, as spec.md has them
//	error.go    codes of refusals, and the ping, which is refused
//
// Package pool keeps carriers ready.
package carrier
