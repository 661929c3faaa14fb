// Package liveness decides when a peer counts as silent. TCP notices only after half a minute
// that packets vanish, and the pings of a control session do not notice it earlier.
//
// Something that is sent to a peer may stay unanswered for PingAfter. A target that is slow to
// accept a connection is the usual reason, so the peer is pinged then. If nothing has come from
// it for PingTimeout after that, it is suspect, and whatever waits for it is told. A suspect is
// pinged until it answers, and any answer clears it. A slow target makes no peer suspect.
//
// The carrier pools of clients (package carrier/pool) and the proxy server use it, and package
// httprelay takes its times from here: one fault is noticed once, after the same time, by
// whoever is next to it.
package liveness
