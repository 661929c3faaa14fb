// Package proxyapi is the HTTPS door to the managed clusters: it serves
// /<cluster>/<any Kubernetes path> on the hub.
//
// # The way of a request
//
//  1. route takes the request target apart, byte for byte, or refuses it.
//  2. A cluster that the hub does not have is 404. The set of clusters is
//     watched, and so is each ManagedClusterAddOn's Available condition, which
//     only serves to say since when a cluster is away.
//  3. One ReverseProxy forwards through the pool: per cluster, one HTTP/2
//     connection for everything but upgrades, and HTTP/1.1 connections for
//     those. A connection is TLS inside a dial of pkg/tunnel, to the agent's
//     own handler. It is made once and used by all users: what a user may do is
//     decided per request, by the credential in it.
//  4. The agent's handler passes the request on to the kube-apiserver.
//
// # Who authenticates whom
//
// Clients verify our serving certificate. The proxy server is verified with the
// hub CA and verifies our client certificate. The agent is verified, inside the
// tunnel, with the agent CA and under the host name of that one cluster, so
// neither the proxy server nor the agent of another cluster can answer in its
// place; it verifies the same client certificate, and its role. The user's
// credential is not looked at here: Authorization and Impersonate-* headers
// reach the managed kube-apiserver unchanged, and that one decides.
//
// Headers in which a proxy vouches for something (X-Forwarded-*, X-Remote-*,
// Forwarded) are never taken from a client. A Connection header may not name
// headers to be dropped: it could take Authorization away and turn a request
// into an anonymous one.
//
// # What fails how
//
// Every error is a metav1.Status that says what to do; statusFor is the one
// place that knows which. Clients of client-go repeat a request up to ten times
// when it is refused with Retry-After, which is why that is always a second:
// it rides out the restart of an agent, and does not keep people waiting.
//
// A pooled connection that is found dead before a request was sent on it is
// replaced without an error. A request that was sent is not repeated.
//
// # Ending
//
// On the first signal /readyz fails, requests are taken for the minimum drain
// duration still, then the listener closes, and requests in flight, watches and
// upgraded connections included, may go on until the drain timeout.
//
// # Out of scope
//
// Authentication and authorization of users on the hub, and the aggregated API,
// are not done yet; nothing here may be taken for them.
package proxyapi
