// Package filter decides whether a request may be sent to the clusters that it is for. Every
// filter fails closed. Behind them is package relay, or package view.
//
// A request enters each file once, in this order:
//
//	crosssite.go       nothing that another site has had a browser send with its user's
//	                   client certificate
//	instrument.go      metrics of the request
//	authentication.go  who sends it (package hubaccess/authn). The request of a caller whom the
//	                   hub does not know goes on unchanged, without a user. Without a
//	                   credential the answer is 401, unless --allow-anonymous is set or the
//	                   Service is listed so
//	audit.go           the audit log, also of requests that package scope refuses
//	impersonation.go   Impersonate-* headers of the hub's users, checked on the hub; for
//	                   streams too if the request leaves the Kubernetes API
//	authorization.go   may they? The hub is asked for clusters/proxy, with the cluster's
//	                   name and the inner request's verb, and for create on clusters/stream
//	                   if the request leaves the Kubernetes API: upgrades but watches by
//	                   WebSocket, exec, attach, port-forward, proxy, Services
//	inflight.go        limits by user and by cluster
//	admission.go       is there such a cluster, and do the headers mean one thing
//	policy.go          does an AccessPolicy refuse it (package accesspolicy says where that is asked)
//	exposure.go        ends a request whose Service is not exposed any more
//	revalidation.go    ends a stream whose caller would be refused now
//
// # Who authenticates whom, and why that holds
//
// Clients verify our serving certificate. The proxy server is verified with the hub CA
// and verifies our client certificate. Package agentclient says how proxy API and agent
// verify each other. The agent believes X-Remote-* from us, so:
//
//   - Headers of that name from the client, in any letters, with hyphens or underscores,
//     are deleted before ours are set, by the one function that sets them
//     (agentclient.SetHeaders). A Connection header may not name end-to-end headers,
//     or it could take one of them away at the next proxy. Names with blanks at an end
//     or control characters are refused: HTTP would make others of them.
//   - A request has a user, or was passed through; with neither, agentclient does not
//     send it. There is no third state to fall into.
//   - A credential of the hub never leaves it. With a user, Authorization,
//     Impersonate-* and WebSocket tokens are deleted. Without one, a token goes on only
//     if the hub's TokenReview says "invalid bearer token" and nothing else, or adds
//     only that no key of the hub made the signature (package hubaccess/authn has
//     the list). A kube-apiserver says these words of every token that is
//     not good, so any other company means that the token may be good in a moment: an
//     authentication webhook or an OIDC issuer does not answer, or the kube-apiserver
//     has just started. The answer is 503 then, or 401 for a token that expired or is
//     for another audience, and it is not cached. With --api-audiences the hub is asked
//     again without audiences, because authenticators that know none are skipped
//     otherwise. Credentials that the hub cannot be asked about (Basic) and bootstrap
//     tokens are never sent on. There remains trust in the hub's authentication
//     webhook: one that says "not authenticated" without an error, while it cannot
//     tell, gives its tokens away.
//   - A Service's own login is in a header of its own, Cluster-Proxy-Authorization, and
//     goes on where the Service's entry in the list says so, at the agent as well
//     (services.go). One header for both would leave it to a guess whose credential it
//     holds. A bearer token there must be one that the hub does not know, by the same
//     question as above; the hub is not asked about other schemes, which it does not
//     have. Everything else of that name that a client sends is deleted.
//   - Agents' metrics are for users whom the hub knows: an agent knows nobody, and trusts
//     the proxy API to have asked. The agent is told by a header, Cluster-Proxy-Agent, that
//     the request is for itself. The header is of those that are deleted before ours are
//     set, so a right to the cluster's API is none to the metrics, nor the other way round.
//     Redirects are not followed, so that an agent cannot send the hub's Prometheus, with
//     its token, to other paths of the hub.
//   - Authorization is decided on the same bytes that are relayed. Package route
//     refuses what two parsers could read in two ways. An upgrade needs a right of its own,
//     because exec by WebSocket is a GET.
//   - A cluster cannot turn clients against others: an answer other than 101 ends an
//     upgrade as any answer does, and redirects stay within what was asked for.
//   - A request does not go round. Where the hub is its own managed cluster, its path
//     could lead here again and again; each relayed request has this hub's name in
//     header Via, and one that has it already is answered 508 (scope.Via).
//
// Trust:
//
//   - The hub's kube-apiserver says whose a token is, which tokens it does not know,
//     what a user may do, and whose client certificates and front proxy to believe. Its
//     authentication webhooks are trusted with it.
//   - A managed cluster gets the requests of its users, with tokens that the hub does
//     not know and no others. A token that it accepted passes the rate limits of
//     unverified ones, and its bearer learns why that cluster cannot be reached; it
//     means nothing for another cluster.
//   - The proxy server is trusted to find the agent. It sees ciphertext.
//   - A client is trusted with nothing: every request is decided anew, and what the hub
//     decided is believed for 5 s, or while the hub cannot be asked.
//
// # What is taken away
//
// Nothing that was granted outlives its withdrawal by more than ten seconds:
//
//   - A cluster is served while package hubaccess/clusters says so. When that ends, all
//     connections to its agent are closed, with the requests on them. A new connection
//     needs a cluster that is served, and an agent whose certificate was issued for the
//     ManagedCluster that has the name now.
//   - An agent's certificate that a handshake would not accept any more gets no new
//     requests (agentclient.Client.Recheck).
//   - A user's right, token or certificate: new requests are refused after at most 5 s,
//     for which answers of the hub are cached. Streams that are open (watches, logs,
//     exec, attach, port-forward, upgrades, CONNECT) are revalidated every
//     --revalidate-streams, by the filters that let them in and with the headers that
//     they came with (revalidation.go). A stream that would be refused is cut;
//     the client asks again and sees why. For the aggregated endpoint this is the
//     user's right alone: the hub's kube-apiserver has checked the token and does not
//     pass it on. A kube-apiserver believes a service account's token for 10 s after it
//     looked, which comes on top of ours when an account is deleted. Streams of one
//     caller to one cluster with one verb cost one question, at most 16 of which are
//     open at a time; a user who watches thousands of clusters makes as many. The token
//     stays in memory for as long as the stream. An answer that is no refusal, and
//     none, takes nothing away. Callers whom only the managed cluster knows are the
//     managed cluster's business.
//   - A Service: taken off the list, it gets no new requests, and those under way end
//     within 4 s, whoever the caller is (exposure.go). If its entry is not anonymous
//     any more, those of callers without a credential do.
//
// # Files
//
//	services.go     the allowlist of Services, and their logins
//	definitions.go  what views are made of: FleetViews, ResourceRegistries, all clusters
//	filters.go      what the filters decide with, and how a request is refused
package filter
