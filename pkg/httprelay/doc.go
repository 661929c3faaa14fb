// Package httprelay makes a relayed HTTP request cheap and correct. The proxy API and
// the agent's handler are two reverse proxies in a row, so each cost is paid twice.
// Most of it (test/bench/api-profile.md) is goroutines and processes that wake each
// other, not encryption. Therefore:
//
//   - ReadPool is a pool of keep-alive HTTP/1.1 connections for reads, each used by one
//     request at a time, by the goroutine that wants the answer. HTTP/2 hands a request from
//     goroutine to goroutine four times, sends header, body and end as records of
//     their own, and encodes headers against a table that every request changes.
//   - Coalesce passes on a document in one piece instead of as it arrives. A body that
//     pauses for 50 ms is no document, whatever its type says, and is passed on as it
//     arrives.
//   - NoFinalFlush leaves out the flush after a body's last byte, so that the end
//     of an answer travels with it.
//   - NoInformational keeps informational answers (1xx) from clients.
//   - HandleEarlyResponses relays a response that comes before the request's body
//     was read.
//   - RepeatBody keeps the body of a short write, which is then sent again if a peer that
//     shuts a connection down has not looked at it.
//   - GrowStack is for the goroutine that HTTP/2 makes for each request.
//
// # What requests share
//
// Shared is a few HTTP/2 connections for everything else. Three things keep one
// request from slowing another:
//
//   - A body that is not read holds its own window and no more: the window of a
//     connection, on servers and clients, is larger than those of all its streams
//     together (ConfigureServer, Shared.Streams). With net/http's defaults, 1 MiB
//     for a stream and 1 MiB for its connection, one upload that a backend does not
//     read stops every other upload on the connection.
//   - A request that would have to share a connection has one more made for the
//     next, up to Spread; the third on a connection waits for it, for half a second,
//     and so does one beside a large answer, for three seconds. A lost packet delays
//     what is on its connection, all of that together is one flow for the network,
//     with one flow's rate (test/bench/loss.txt has the figures), and on a slow link
//     a small answer waits behind a large one for longer than a dial takes. So those
//     that begin together have a dial each, requests prefer connections without a
//     large answer, and frames are of 16 KiB.
//   - Retired connections end with their last request.
//
// A window is 1 MiB: a stream moves 20 MB/s at a round trip of 50 ms in either
// direction (net/http: 20 MB/s up, for all streams of a connection together, and 80
// down). Larger ones are memory that a peer may fill: a stream's unread part is in
// this process. Reads on pooled connections have TCP's window and are not bound to it.
//
// # Silence
//
// A peer that dies silently acknowledges nothing, and TCP waits for a quarter of an
// hour. net/http's pings end an HTTP/2 connection, and the requests on it, 25 s after the
// last frame. New requests do not wait for that. If nothing arrives for a second after
// something was sent, a ping of ours finds out within another second whether the connection
// is alive (silence.go; package liveness has the times), and until something arrives no
// request uses it. Reads are then sent
// again. Writes cannot be, so a write on a connection that was quiet for three seconds
// waits for the answer to a ping first: one round trip. A slow answer costs only the
// pings, since those are answered.
//
// ReadPool connections have no ping, and a slow answer is no reason to send a read twice: that
// doubles the load of a cluster that is slow already. A read without an answer for a second
// asks for evidence (ReadPool.Alive) every second: that the peer's TCP has not acknowledged the
// request for a second, or that a ping on one of the peer's HTTP/2 connections has not been
// answered since the pooled connection was heard last. With evidence, which takes 2 s at most
// from a peer that is gone, the connection is closed, with the free ones, and the read is sent
// by HTTP/2, once. Without evidence it waits. If a connection leads through a proxy server, the
// HTTP/2 connections may lead another way; the proxy server then ends it, 30 s after the last
// acknowledgement of the agent. A read that waited for 15 s is not sent again.
//
// # net/http
//
// The connections are http.ClientConns, which net/http has since Go 1.26. In 1.26 and 1.27 it lacks
// three things that this package needs:
//
//   - A ping when asked. Ours is OPTIONS of *, which Go's server answers itself. A connection
//     that takes no more requests, since its peer shuts down, cannot be asked that way: reads on
//     it wait for net/http's own pings.
//   - A type for "the peer has not looked at this request". attempt.go knows net/http's texts; a
//     write whose error has another text is not sent again (TestUnprocessedIsSentAgain).
//   - A promise that a server's window may be 4 MiB or more for a connection. ConfigureServer
//     therefore is x/net's, which is deprecated and which net/http serves from Go 1.27 on.
//
// # Upgrades
//
// The hub grants the right to an upgrade, the managed cluster's owner may cap it, and
// both ends choose connections by it. If they read requests differently, a request
// could be an ordinary one where it is authorized and a stream where it is served.
// IsUpgrade is therefore the only reading, and the widest one; and no answer changes
// the protocol unless WasAskedFor, the narrowest reading, allows it.
//
// # Sizes
//
// Headers of an answer, informational ones included, are MaxHeaderBytes at most, on
// every connection of this package.
//
// Files: readpool.go has the ReadPool. shared.go, attempt.go and choose.go are Shared: its connections, what is
// sent again, and which connection a request takes. silence.go finds out whether a connection is alive. coalesce.go, finalflush.go, earlyresponse.go, repeatbody.go,
// informational.go, upgrade.go and stack.go have what their names say, server.go and headersize.go sizes.
package httprelay
