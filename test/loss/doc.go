// Package loss measures what lost packets do to users who share connections, beside
// users with connections of their own ("make bench-loss", root on Linux).
//
// Two network namespaces are joined by a pair of tun devices. A goroutine carries
// each IP packet from one to the other after half a round trip, and drops one in a
// hundred: the kernel's TCP on both ends sees real delay and real loss, without
// netem, which not every kernel has. TLS and HTTP/2 are those of package httprelay; the
// tunnel is left out, since its carriers pass bytes on and have one TCP connection
// for each of these.
//
// TestLongRoundTrip downloads over a longer way of the same kind, on which nothing is
// lost, by what carriers set on their TCP connections and by a stream among many.
package loss
