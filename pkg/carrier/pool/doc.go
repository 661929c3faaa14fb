// Package pool keeps the carriers to one peer ready. It uses only what package carrier
// exports, and knows nothing of Kubernetes or gRPC either.
//
// A Pool serves either side: the side that sends OPEN takes idle carriers out of it,
// the side that dials keeps it filled, and Config says which it is. Only openers
// close surplus idle carriers, so that closing never races with an OPEN on its way.
//
// A carrier reports that it is idle after the fact, and an OPEN of the peer may
// overtake the report. The pool therefore asks the carrier for its state, under its own
// lock, instead of relying on the order of reports. Each change of state is reported
// after it happened, so the last report finds the true state. An idle carrier whose
// last FIN is still being written counts as in use, is not handed out, and delays a
// drain.
//
// # Control sessions
//
// A carrier that is a control session still (carrier.Session) counts as idle. It is used when
// there is no other one, since the dialing side has to make a new session for it, and it is
// never closed as surplus. A dialing side's pool that once had one keeps one: it dials whenever
// no idle carrier is a session, however many are idle.
//
// # Drains
//
// A pool that drains closes what is idle at once, on either side. The peer may have a newer
// pool of the same two sides already (an agent that has left a proxy server and is back), and
// must not find refusals in it for as long as some connection lasts. An OPEN on its way is
// sent again on another carrier.
//
// # Silent peers
//
// Where one address leads to several peers (not Config.OnePeer), a pool tells them apart by
// PeerName. If an OPEN has no answer for a second, the pool pings its peer on an idle carrier,
// since a target that is slow to accept does not delay that (package liveness). If there is none, a
// carrier that is dialed then may lead to the peer, which shows that it is alive, and four at a
// time are dialed until one does; where there may be no more carriers, the OPEN waits. A peer of
// which nothing comes for another second is silent: the OPEN ends and is sent on another carrier,
// and the peer's idle carriers wait until it answers a ping, since it may only be short of
// processors, and handshakes are more work. If it comes back by a new carrier first, they are
// closed. If TCP has no acknowledgement of the OPEN after that time, the OPEN alone ends and is
// sent on another carrier. An OPEN is never sent twice while its peer answers: a slow cluster gets
// no more work for being slow. A peer that has answered something since the Open began, be it a
// handshake, is slow and not silent: the OPEN that is sent to it then waits. A dial that takes
// longer than 500 ms does not hold up those that wait for a carrier either: another dial begins
// beside it.
//
// # Retries
//
// The pause between failed dials grows with each failure (exponential backoff with
// jitter). An Open that comes meanwhile, or the peer's request for carriers, shortens
// the pause to that after a first failure.
//
// Files: drain.go has Drain and Close, pool.go the configuration, the carriers, Open and Ping,
// refill.go the dials and what closes surplus carriers, silence.go silent peers and dials that
// take long.
package pool
