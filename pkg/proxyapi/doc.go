// Package proxyapi is the HTTPS door to the managed clusters. It is an API server
// of the hub without a store: k8s.io/apiserver finds out who calls, asks the hub
// whether he may, and writes the audit log; our handler stands before its REST
// layer and forwards. It is never a rest.Connecter, which refuses dry-run and
// reads query parameters that are the managed cluster's.
//
// # Doors
//
// All of them lead through the same chain of filters; newCall tells them apart.
//
//   - /<cluster>/<path>, upstream's URL, and <cluster>.<domain> as host.
//   - /apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/<cluster>/proxy/<path>,
//     which the hub's kube-apiserver sends here by an APIService. Its front proxy
//     decodes and encodes paths anew, so byte for byte is for the other doors. It
//     answers redirects with 502, and OPTIONS with 403, having no verb for it.
//   - CONNECT <cluster>:443, a connection to the cluster's kube-apiserver that we
//     do not look into, and CONNECT <service>.<ns>.svc.<cluster>:<port>, one to a
//     Service that the allowlist has with protocol tcp.
//   - /<cluster>/api/v1/namespaces/<ns>/services/[<scheme>:]<service>[:<port>]/proxy-service/<path>,
//     a Service of the hub's allowlist, in the first three doors.
//
// Below the aggregated API's group there are also the list of clusters, those
// that the caller may reach (the hub is asked about each, once in 10 s for each
// user, however often he asks), and clusters/<name>/identity, which says who he is
// there. First segments that the proxy API needs itself (route.Own) are no
// clusters in the first door.
//
// # The way of a request
//
//  1. route takes the request target apart, byte for byte, or refuses it. What
//     is refused so early is in the audit log too, without a user.
//     RequestInfo reads what is left as the managed kube-apiserver will.
//  2. hubaccess finds the user by client certificate, the hub's front proxy, or
//     TokenReview. A token that the hub says it does not know is left to the
//     managed cluster: the request goes on unchanged, without a user. Without a
//     credential the answer is 401, unless --allow-anonymous, or the Service that
//     is asked for is listed so.
//  3. Impersonate-* headers of the hub's users are checked on the hub, for
//     streams too if the request leaves the Kubernetes API.
//  4. The hub is asked for clusters/proxy, with the cluster's name and the inner
//     request's verb, and for create on clusters/stream if the request leaves the
//     Kubernetes API: upgrades, exec, attach, port-forward, proxy, Services.
//  5. Limits by user and by cluster, and whether there is such a cluster.
//  6. One ReverseProxy sends it through package agentclient, which deletes every
//     header that could say who it is from, and then sets the user's.
//
// # Who authenticates whom, and why that holds
//
// Clients verify our serving certificate. The proxy server is verified with the
// hub CA and verifies our client certificate. The agent is verified, inside the
// tunnel, with the agent CA and under the host name of that one cluster; it
// verifies our certificate, and its role. It believes X-Remote-* from us, so:
//
//   - What the client sent of that name, in any letters, with hyphens or
//     underscores, is deleted before ours is set, by the one function that sets
//     it. A Connection header may not name end-to-end headers, or it could take
//     one of them away on the next hop. Names with blanks at an end or control
//     characters are refused: HTTP would make others of them.
//   - A request has a user, or was passed through; with neither, agentclient does not
//     send it. There is no third state to fall into.
//   - A credential of the hub never leaves it. With a user, Authorization,
//     Impersonate-* and WebSocket tokens are deleted. Without one, a token goes
//     on only if the hub's TokenReview says "invalid bearer token" and nothing
//     else, or adds only that no key of the hub made the signature (tokenreview.go
//     of package hubaccess has the list). A kube-apiserver says these words of every token that is not
//     good, so any other company means that the token may be good in a moment:
//     an authentication webhook or an OIDC issuer does not answer, or the
//     kube-apiserver has just started. The answer is 503 then, or 401 for a
//     token that expired or is for another audience, and it is not cached. With
//     --api-audiences the hub is asked again without audiences, because
//     authenticators that know none are skipped otherwise. Credentials that the
//     hub cannot be asked about (Basic) and bootstrap tokens are never sent on.
//     What remains is trust in the hub's authentication webhook: one that says
//     "not authenticated" without an error, while it cannot tell, gives its
//     tokens away.
//   - A Service's own login is in a header of its own, Cluster-Proxy-Authorization,
//     and goes on where the Service's entry in the list says so, at the agent as well
//     (login.go). One header for both would leave it to a guess whose credential it
//     holds. A bearer token there must be one that the hub does not know, by the
//     same question as above; the hub is not asked about other schemes, which it
//     does not have. Everything else of that name that a client sends is deleted.
//   - Authorization is decided on the same bytes that are forwarded. What two
//     parsers could read in two ways is refused by route. An upgrade needs a
//     right of its own, because exec by WebSocket is a GET.
//   - A cluster cannot turn clients against others: an answer other than 101 ends
//     an upgrade as any answer does, and redirects stay within what was asked
//     for.
//   - A request does not go round. Where the hub is its own managed cluster, its
//     path could lead here again and again; each forwarded request has this hub's
//     name in header Via, and one that has it already is answered 508 (loop.go).
//
// Who is trusted for what:
//
//   - The hub's kube-apiserver says whose a token is, which tokens it does not
//     know, what a user may do, and whose client certificates and front proxy to
//     believe. Its authentication webhooks are trusted with it.
//   - A managed cluster gets the requests of its users, with tokens that the hub
//     does not know and no others. That it accepted a token lets the token
//     through the limits of unverified ones, and lets its bearer learn why that
//     cluster cannot be reached; it means nothing for another cluster.
//   - The proxy server is trusted to find the agent. It sees ciphertext.
//   - A client is trusted with nothing: every request is decided anew, and what
//     the hub decided is believed for 10 s, or while the hub cannot be asked.
//
// # What fails how
//
// Every error is a metav1.Status that says what to do; statusFor is the one
// place that knows which. Clients of client-go repeat a request up to ten times
// when it is refused with Retry-After, which is why that is always a second:
// it rides out the restart of an agent, and does not keep people waiting.
//
// Answers do not tell which clusters there are. A cluster that a user of the hub
// has no right to is 403 whether there is one or not. A token that the hub does
// not know is 401, in the same words, whether the cluster refuses it, cannot be
// reached, or does not exist (hidden); only a token that this replica has seen a
// cluster accept is told more of that cluster. What is left: how long an answer
// takes, answers with which a cluster's own kube-apiserver refuses to serve
// anybody (5xx), and Services, which authenticate for themselves.
//
// Requests with unverified credentials are rate limited, and the hub's past answers
// stand while it cannot be asked, for --hub-outage-grace: see package hubaccess.
//
// # What is taken away
//
// Nothing that was granted outlives its withdrawal by more than ten seconds:
//
//   - A cluster is served while package hubaccess says so. When that ends, all
//     connections to its agent are closed, with the requests on them. A new
//     connection needs a cluster that is served, and an agent whose certificate was
//     issued for the ManagedCluster that has the name now.
//   - An agent's certificate that a handshake would not accept any more gets no new
//     requests (agentclient.Client.Recheck).
//   - A user's right, token or certificate: new requests are refused after at most
//     decisionTTL. Streams that are open (watches, logs, exec, attach, port-forward,
//     upgrades, CONNECT) are looked at again every --revalidate-streams, by the
//     filters that let them in and with the headers that they came with
//     (revalidate.go); a stream that would be refused is cut, and so the client
//     asks again and sees why. For the aggregated door this is the user's right
//     alone: the hub's kube-apiserver has checked the token and does not tell it.
//     A kube-apiserver believes a service account's token for 10 s after it looked,
//     which comes on top of ours when an account is deleted.
//     Streams of one caller to one cluster with one verb cost one question, at most
//     16 of which are open at a time; whoever watches thousands of clusters makes as
//     many. The token stays in memory for as long as the stream. An answer that is
//     no refusal, and none, takes nothing away. Callers whom only the managed
//     cluster knows are the managed cluster's business.
//
// # Readiness
//
// Ready means that this process can answer: it knows the clusters and has a
// certificate. Without a proxy server it still is, and answers requests to
// clusters with 503; a metric (proxy_server_reachable) and the log say so. Were it
// not, all replicas would leave the Service at once and the APIService of the
// aggregated API would be unavailable, which stalls the hub's own garbage
// collection and the deletion of its namespaces.
//
// # What one user may take
//
// Whoever reaches the port may make it work on ClientHellos: package handshakes
// bounds how many are worked on at a time, and lets sources take turns.
//
// Numbers of requests and streams are bounded by user and by cluster (flags), and so
// is what may lie in memory because it is not read: 128 MiB for a user and 512 MiB
// for a cluster, in each direction. A request's body counts with its length, up to
// the 1 MiB that HTTP/2 takes before it is read; one too many is 429. An answer
// counts, with 1 MiB (a watch: 256 KiB), while its client has not read for a second.
// Clients that pause are waited for, but one pause too many is cut off
// (denied_total, reason unread). Headers of answers are 256 KiB at most, whatever
// they come by, and informational ones five: an agent is one cluster's, and may be
// anybody's.
//
// While most of a memory limit is used, by whomever, requests are answered 503
// (package memlimit), and what is open goes on.
//
// There is no limit of bytes per second. A slow reader or writer holds no one up,
// since every stream has its own window and every cluster several connections, and
// the network's share is what TCP gives each connection. A limit in the process would
// have to know the narrowest link on the way, which is a different one for each
// cluster; and what a user reads fast costs the managed kube-apiserver, whose own
// flow control knows the user. Whoever must bound bandwidth does so where it is
// narrow: in the network.
//
// # Ending
//
// On the first signal /readyz fails, requests are taken for the minimum drain
// duration still; then the listener closes, watches end as if their time were
// up, and requests in flight, upgraded connections included, may go on until the
// drain timeout.
//
// # Out of scope
//
// Bodies are not in the audit log: they are streamed. What a user may do on a cluster is the cluster's RBAC's business;
// the agent impersonates him there.
package proxyapi
