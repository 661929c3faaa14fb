// Package replica is how replicas of the proxy API speak to each other, on a port of their own.
//
// A watch of a view may go on at another replica than the one that it was at. Package
// fleetview/watch says what that takes; this package carries it between replicas, on a port
// of their own. They find each other by the name of a headless Service, and by telling each
// other, every 3 s: a new replica is known to all at once, whatever DNS says. A version that
// this replica does not know is asked of all peers, for 1.5 s at most. A replica that drains
// answers until its end, tells its peers what is new every second, and says goodbye when they
// know all of it.
//
// Peers know each other by the client certificate of the proxy API, which is for the name
// identity.ProxyAPIPeerHost too, and by its role, at both ends and for each request.
// Nothing else may use the port: no user, agent, client or proxy server. A peer that lies
// could make watches lose events; it could make any request of any user anyway. Messages
// name clusters by UID and their versions, and no object, user or credential.
//
// # Files
//
//	port.go      the port for them, and who may use it
//	sessions.go  sessions of the other replicas
//	peers.go     the other replicas: finds, greets, asks and tells them
package replica
