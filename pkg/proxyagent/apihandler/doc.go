// Package apihandler is the HTTPS server inside the agent that receives requests from
// the hub's proxy API. It forwards them to the managed cluster's kube-apiserver.
//
// Authentication: the handler shows the agent's certificate, whose name is this
// cluster's and no other's, and demands a certificate of the hub CA with the role of
// the proxy API. It answers no other connection. TLS runs from the proxy API to here,
// so the proxy server in between sees ciphertext.
//
// # Whom a request is from
//
// The hub names a user whom it knows in Kubernetes' headers for front proxies
// (X-Remote-User, -Uid, -Group, -Extra-*), which only the proxy API can set. The agent
// deletes all other headers about identity and impersonates the user with its own
// service account, which has no other right. It decides for itself whom it impersonates
// (identity.go): service accounts of the hub get the prefix cluster:hub:, names that
// mean something to a control plane (system:, but for system:authenticated) are refused
// as users and left out as groups, unless this cluster's owner allows them. Extras are
// asserted if the service account has the right to their key, and left out otherwise, but for
// scopes, without which a token would be good for more: they are refused.
//
// Where the cluster is the hub itself, its users are themselves: no name is changed,
// refused or left out, because none means something else. The addon manager finds that
// out (agentaddon's recognizeHub). There the proxy API, which alone asserts users, can act as
// the hub's administrator; it could act as anyone to whom RBAC gives that role in any
// case.
//
// Without these headers the hub does not know the user. The request goes through with
// the token and the Impersonate headers that it has, to the kube-apiserver, which
// authenticates them. If an OpenID Connect provider is configured and issued the token,
// the agent impersonates its user too. The agent uses its own credential for
// impersonation only; a request without any credential is anonymous.
//
// The owner policy (package ownerpolicy) decides before all that. An invalid policy
// stops every request.
//
// Requests share pooled HTTP/2 connections to the kube-apiserver, with requests of the
// same credential only: a kube-apiserver ends the connection on which it refuses a
// token, and what others have sent on it would be lost (credentials.go). Those that ask
// for an upgrade (exec, attach, port-forward) get an HTTP/1.1 connection of
// their own, because HTTP/2 has none. Reads that came on a connection of a ReadPool
// (package httprelay) go on on one: with HTTP/2 a read alone takes a fifth longer, and
// costs the kube-apiserver more as well. If the kube-apiserver's TCP acknowledges nothing of
// such a read for 2 s, the read is sent by HTTP/2. Connections made with the agent's
// credential carry only requests of users whom it impersonates.
//
// # Services
//
// A request that names a Service (headers Cluster-Proxy-*, set by the proxy API
// alone) goes there instead: only if the hub's list, which the agent has a copy
// of, has it. The name is resolved, the address checked, and what was checked is
// dialed (services.go, servicedial.go). Ports by name come from the cluster's
// DNS, so the agent needs no right to read Services. HTTPS is verified with the
// cluster's CA under the name <service>.<namespace>.svc. A Service learns
// nothing of who the user is on the hub; if the hub does not know the user, the
// request's own Authorization goes along. Method CONNECT with protocol
// tcp makes a plain connection.
//
// # The agent's metrics
//
// A request with the header Cluster-Proxy-Agent is answered here (metrics.go), with what
// the agent's port for metrics shows. It must be from a user of the hub, whose right the proxy
// API has asked for; the owner's policy may cap it; nobody is impersonated. Which agent of the
// cluster is asked is by chance, and no caller can choose. Every metric therefore has the label pod:
// the counters of two agents are two series, each of which only grows.
//
// # The fleet index
//
// A certificate of the hub CA with the role of the fleet index gets two paths and nothing else: /index, the rows of
// objects (package proxyagent/index), and /reviews, what a user may do (index.go). The owner's policy can refuse
// both, and ends a stream of rows within ownerPause. Each question of a review is sent to the kube-apiserver as a
// SelfSubjectAccessReview on the way of a request of the proxy API, with all that the agent checks of its user.
//
// Failures: the answer is 502 if the kube-apiserver cannot be reached and 504 if it
// does not answer in time, both as a metav1.Status that names the hop. A connection
// that ends or is cut off on one side ends in the same way on the other (package
// connect). A plain TCP target that is killed is the exception: its kernel ends the
// connection cleanly.
//
// Nothing of a request's headers or bodies is logged, whatever --v is.
//
// Files: apihandler.go is the server and its way to the kube-apiserver, access.go and
// identity.go say who a request is from and whom the agent impersonates, transports.go
// and credentials.go have the connections to the kube-apiserver, services.go and
// servicedial.go the relay to Services, index.go answers the fleet index, metrics.go counts, and answers requests for the
// agent's metrics.
package apihandler
