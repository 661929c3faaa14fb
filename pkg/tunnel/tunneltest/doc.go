// Package tunneltest is a hub with managed clusters in memory, for tests of
// programs that use package tunnel:
//
//	hub := tunneltest.Start(t)
//	hub.Forward("cluster1:443", server.Listener.Addr().String())
//	cfg := hub.Dialer().RESTConfig("cluster1")
//
// The hub is a proxy server on a loopback address that speaks carriers as the real
// one does; there are no agents, it connects to the targets itself.
//
// The wire is real, so what a test sees of refused dials, broken connections
// and restarts is what the program will see. It has no agents, no policy, and no
// flow control between hub and agent.
//
// Files: hub.go has the Hub.
package tunneltest
