// Package connect is HTTP's method CONNECT, from both ends: Accept answers a
// request and gives the connection that follows, Ask sends one, and Join copies
// between two connections.
//
// Ends keep their meaning on the way. A clean end of one direction is passed on
// as a half-close where the other side has one (TCP, TLS and carriers do), and
// anything else ends both connections, so that nobody takes what was cut off for
// a clean end. HTTP/2 has no half-close that a handler can send: a stream ends
// with its handler.
package connect
