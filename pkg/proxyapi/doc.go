// Package proxyapi is the HTTPS endpoint for users of managed clusters. It is an API
// server of the hub without a store: the filters of k8s.io/apiserver find out who
// calls, ask the hub whether they may, and write the audit log; then a relay sends the
// request to the cluster's agent. The relay stands before the REST layer of
// k8s.io/apiserver and is never a rest.Connecter, which refuses dry-run and reads query
// parameters that are the managed cluster's.
//
// # Endpoints
//
// All of them lead through the same chain of filters; newScope tells them apart.
//
//   - direct: /<cluster>/<path>, the URL of OCM's own cluster-proxy.
//   - host: <cluster>.<domain> as host.
//   - aggregated: /apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/<cluster>/proxy/<path>,
//     which the hub's kube-apiserver sends here by an APIService. Its front proxy
//     decodes and encodes paths anew, so only the other endpoints are byte for byte. It
//     answers redirects with 502, and OPTIONS with 403, having no verb for it.
//   - views: /@<view>/<path> in the direct endpoint ("@" is in no cluster's name, and may be
//     written %40), and .../v1alpha1/fleetviews/<view>/proxy/<path> in the aggregated one.
//     The resource fleetviews of this group is not in discovery: it would hide the
//     FleetViews of group proxy.open-cluster-management.io from "kubectl get fleetviews".
//   - Karmada's (--karmada-api): /apis/cluster.karmada.io/v1alpha1/clusters/<cluster>/proxy/<path>
//     and .../clusters/*/proxy/<path>, a view of all clusters, and
//     /apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/<path>, the view that all
//     ResourceRegistries make together.
//   - CONNECT: CONNECT <cluster>:443 is a connection to the cluster's kube-apiserver
//     that is not looked into, and CONNECT <service>.<ns>.svc.<cluster>:<port> one to a
//     Service that the allowlist has with protocol tcp.
//
// Services of the hub's allowlist are at
// /<cluster>/api/v1/namespaces/<ns>/services/[<scheme>:]<service>[:<port>]/proxy-service/<path>,
// in the first three endpoints.
//
// The aggregated API also has the list of clusters that the caller may reach (see
// package hubaccess for how often the hub is asked about each),
// and clusters/<name>/identity, which says who the caller is there. clusters/<name>/metrics
// is answered by the cluster's agent, with its own metrics: it takes the way of a request to
// the cluster, with the right to get clusters/metrics (or clustersets/metrics) in place of
// the others. It has no path below it and no other method. First segments that
// the proxy API needs itself (route.Own) are no clusters in the direct endpoint.
//
// With --ui there is a page for people at /ui/ (package ui). It is served like probes, without
// a credential and without a filter, and contains nothing: what it shows it asks of the
// aggregated API, and of FleetViews at their path on the hub, with the right that the hub asks for.
//
// Documents of clusters and Services are answered with a policy that sandboxes them, unless the
// cluster has a host of its own: they would share an origin with those of other clusters, and with
// the page. Their cookies are kept below the path of the cluster or Service (cookies.go).
//
// # The way of a request
//
// It enters each file once, in this order:
//
//	handler.go                one request from its first filter to its end
//	request.go                newScope: what the request wants. Package route takes the
//	                          request target apart, byte for byte, or refuses it;
//	                          RequestInfo reads it as the managed kube-apiserver will
//	filter_crosssite.go       nothing that another site has had a browser send with its user's
//	                          client certificate
//	instrument.go             metrics of the request
//	filter_authentication.go  who sends it (package hubaccess). The request of a caller
//	                          whom the hub does not know goes on unchanged, without a
//	                          user. Without a credential the answer is 401, unless
//	                          --allow-anonymous is set or the Service is listed so
//	filter_audit.go           the audit log, also of requests that newScope refuses
//	filter_impersonation.go   Impersonate-* headers of the hub's users, checked on the
//	                          hub; for streams too if the request leaves the Kubernetes API
//	filter_authorization.go   may they? The hub is asked for clusters/proxy, with the
//	                          cluster's name and the inner request's verb, and for create
//	                          on clusters/stream if the request leaves the Kubernetes API:
//	                          upgrades, exec, attach, port-forward, proxy, Services
//	filter_inflight.go        limits by user and by cluster
//	filter_admission.go       is there such a cluster, and do the headers mean one thing
//	filter_exposure.go        ends a request whose Service is not exposed any more
//	filter_revalidation.go    ends a stream whose caller would be refused now
//	relay.go                  one ReverseProxy to the agent, and the answer back
//	connect.go                the same for CONNECT: two connections joined
//	transport.go              hands it to package agentclient, with its user
//
// A request for a view goes through the same filters, and then to fleet.go and members.go
// instead of relay.go.
//
// # Fleet views
//
// Package fleetview makes one answer of many. What it asks of a cluster it asks through
// a member, which is of one request and one user. A view grants nothing:
//
//   - Only users whom the hub knows may use views: a token that a cluster may know is 401,
//     because it must reach no other cluster, and so is a request without a credential.
//   - get on the FleetView is the right to the view. A view that is not there and one
//     without the right have the same answer: 403, or 404 with the views that the user may
//     use if the user may list FleetViews.
//   - Its clusters are those that the user may reach with the verb of this request (and
//     with streams, if it leaves the Kubernetes API), by name or by ManagedClusterSet.
//     Others are not mentioned in any answer. What package fleetview sends with another
//     verb needs that verb's right too, or is answered 403 in the cluster's place
//     (member.mayAlso): a right to list cannot be made to delete.
//   - Constrained impersonation through a view needs the right for all clusters.
//
// A FleetView of one name goes to that cluster as it is (View.Single): through the relay, with the
// same rights, the rules of the view and its timeout. A watch ends when the FleetView changes.
//
// A request counts once for its user, whatever the number of clusters, in limits of its
// own (--max-view-requests), so that views do not take the place of other requests; a
// watch is a stream as any other. logs, exec and the like go through the relay with
// the scope, the limits and the revalidation of their cluster. Redirects of a cluster lead
// to the cluster's own path. The audit event has the view and the clusters that were asked.
//
// # Peers
//
// A watch of a view may go on at another replica than the one that it was at. What that
// takes is in package fleetview/watch; peers.go carries it between replicas, on a port of
// their own. They find each other by the name of a headless Service, and by telling each
// other, every 3 s: a new replica is known to all at once, whatever DNS says. A version that
// this replica does not know is asked of all peers, for 1.5 s at most. A replica that drains
// answers until its end, tells its peers what is new every second, and says goodbye when they
// know all of it.
//
// Peers know each other by the client certificate of the proxy API, which is for the name
// identity.ProxyAPIPeerHost too, and by its role, at both ends and for each request.
// Nothing else may use the port: no user, agent, client or proxy server. A peer that lies
// could make watches lose events; it could make any request of any user anyway. What goes
// over names clusters by UID and their versions, and no object, user or credential.
//
// # Sessions
//
// What users have open is a list of its own, sessions of the aggregated API: exec, attach,
// port-forward, CONNECT, other upgrades, and watches of views. Requests that end by themselves,
// logs, and watches of one cluster are not in it.
//
//   - One rule for rights: who has the hub's right to sessions sees those of all users and may
//     end them, and nobody else sees any. A user's own are no exception: a rule by user would
//     need a filter that RBAC does not know.
//   - A name is 16 random bytes. Of the query it shows the container alone, because command
//     lines may have secrets. What users and clusters have chosen is quoted if it is not
//     printable, and cut off (shown).
//   - A session is added when the stream begins, after the answer's header, and removed by the
//     function that serves the request, however it ends. A plain request pays nothing.
//   - A replica asks its peers when it is asked, for 1.5 s and 4 MiB each, and speaks for its
//     own sessions. A peer that does not answer is a Warning in a list, and 503 for a session
//     that is nowhere else. What a peer says is read field by field, and quoted again.
//   - There is no watch: it would need one at each replica, and who waits for the end of a
//     session asks again. Without it the hub's garbage collector leaves sessions alone, too.
//   - Who ends a session is in the audit event, with the session's user. The user reads "ended
//     by an administrator" behind a whole frame (package frames) or event, has 2 s to read it,
//     and is cut off then. Nothing of what the user sends after that goes on to the cluster.
//     The user may begin anew: rights are taken away elsewhere.
//
// # Recordings
//
// With --recording-dir what users of exec and attach see goes into files too, with --recording-url
// to a Service (package recording), for the clusters that the flags name. Package frames hands out the bytes as they pass, and
// changes none.
//
//   - The file is made before the request is sent: a user whom the policy lets have no session without
//     a recording has run nothing when the answer is 503. A request that the cluster refuses
//     leaves no file, and at a Service one that says so.
//   - Bytes are in the recording's buffer before the user gets them. What the volume takes later is
//     in the doc.go of package recording, with what it means to fail closed.
//   - Everything that the kubelet could take for exec or attach is recorded: upgrades of
//     pods/exec and pods/attach, and all of nodes/proxy. With --recording-fail-closed the requests
//     are refused that can run commands without an upgrade that this process sees: CONNECT to a
//     kube-apiserver, and nodes/proxy with a method other than GET and HEAD, because the kubelet's
//     run is there, which takes no notice of an Upgrade header.
//     Not seen are sessions by a Service, by port-forward, and by the proxy server's own port.
//   - A recording that fails ends its session as an administrator does, with another Status, or
//     the session goes on and log, metrics and audit event say so. It never begins again. One that fails
//     after the session's end is in log and metrics.
//   - Nothing serves recordings: no path, no right, no metric with a name leads to them.
//   - Replicas share the folder or have one each. They do not ask each other.
//
// # Karmada's API
//
// Karmada's documentation of clusters/<name>/proxy and of proxying/karmada/proxy works on the
// hub, by APIServices, and the code behind it is that of the addon's own endpoints. What is
// asked of the hub is what Karmada's URL says:
//
//   - The rights to clusters are those to clusters/proxy and clusters/stream (and the same of
//     clustersets) in group cluster.karmada.io. A right in one group is none in the other:
//     whoever writes a role for Karmada's URLs has not thought of ours. Karmada itself has
//     exec in clusters/proxy; here it needs create on clusters/stream too.
//   - clusters/*/proxy needs the right to a cluster of the name "*", and proxying/karmada/proxy
//     that to proxying/proxy of the name karmada, with the inner request's verb. Neither grants
//     a cluster. In Karmada the latter shows all cached objects, and the control plane's as its
//     administrator; here the cluster --karmada-control-plane is asked as the user, as any other.
//
// A ResourceRegistry selects a kind, of which the view needs the resource. It is derived from
// the kind's name (hubaccess.RegistryResource.Plurals). No cluster is asked for it.
//
// An aggregated API has no CustomResourceDefinition. ResourceRegistries are therefore served
// by k8s.io/apiserver as other kinds are, with discovery, OpenAPI, patches and server-side
// apply, and stored as KarmadaResourceRegistries of the addon's group (registries.go): the
// hub's kube-apiserver has their versions, watches and validation. The proxy API reads and
// writes them as itself. The user's right to the ResourceRegistry was asked for before, so
// nobody needs a right to what it is stored as, and nobody is impersonated: the proxy API
// would need the right to impersonate all users of the hub for it. The hub's own audit log
// has the user's request, because its kube-apiserver sends it here.
//
// # Who authenticates whom, and why that holds
//
// Clients verify our serving certificate. The proxy server is verified with the hub CA
// and verifies our client certificate. Package agentclient says how proxy API and agent
// verify each other. The agent believes X-Remote-* from us, so:
//
//   - What the client sent of that name, in any letters, with hyphens or underscores,
//     is deleted before ours is set, by the one function that sets it
//     (agentclient.SetHeaders). A Connection header may not name end-to-end headers,
//     or it could take one of them away at the next proxy. Names with blanks at an end
//     or control characters are refused: HTTP would make others of them.
//   - A request has a user, or was passed through; with neither, agentclient does not
//     send it. There is no third state to fall into.
//   - A credential of the hub never leaves it. With a user, Authorization,
//     Impersonate-* and WebSocket tokens are deleted. Without one, a token goes on only
//     if the hub's TokenReview says "invalid bearer token" and nothing else, or adds
//     only that no key of the hub made the signature (tokenreview.go of package
//     hubaccess has the list). A kube-apiserver says these words of every token that is
//     not good, so any other company means that the token may be good in a moment: an
//     authentication webhook or an OIDC issuer does not answer, or the kube-apiserver
//     has just started. The answer is 503 then, or 401 for a token that expired or is
//     for another audience, and it is not cached. With --api-audiences the hub is asked
//     again without audiences, because authenticators that know none are skipped
//     otherwise. Credentials that the hub cannot be asked about (Basic) and bootstrap
//     tokens are never sent on. What remains is trust in the hub's authentication
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
//   - Authorization is decided on the same bytes that are relayed. What two parsers
//     could read in two ways is refused by route. An upgrade needs a right of its own,
//     because exec by WebSocket is a GET.
//   - A cluster cannot turn clients against others: an answer other than 101 ends an
//     upgrade as any answer does, and redirects stay within what was asked for.
//   - A request does not go round. Where the hub is its own managed cluster, its path
//     could lead here again and again; each relayed request has this hub's name in
//     header Via, and one that has it already is answered 508 (via.go).
//
// Who is trusted for what:
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
// # What fails how
//
// Every error is a metav1.Status that says what to do. agentclient.StatusOf has the code and the
// text of what happened on the way, and package status the Reason of a code. Clients of client-go repeat a request up to
// ten times when it is refused with Retry-After, and kubectl asks for discovery five times. A
// second rides out the restart of an agent. A cluster that has been away for longer, and proxy
// servers that have, are answered without Retry-After (agentclient.IsAway).
//
// Discovery of client-go throws the Status away. The message of a request that is for no
// resource is therefore in a Warning, too, which kubectl shows (warn).
//
// Answers do not tell which clusters there are. A cluster that a user of the hub has no
// right to is 403 whether there is one or not. A token that the hub does not know is
// 401, in the same words, whether the cluster refuses it, cannot be reached, or does not
// exist (requestFilters.hidden); only a token that this replica has seen a cluster
// accept is told more of that cluster. What is left: how long an answer takes, answers
// with which a cluster's own kube-apiserver refuses to serve anyone (5xx), and Services,
// which authenticate for themselves.
//
// Requests with unverified credentials are rate limited, and the hub's past answers
// stand while it cannot be asked, for --hub-outage-grace: see package hubaccess. What is
// repeated when a connection to an agent breaks is in package agentclient.
//
// # What is taken away
//
// Nothing that was granted outlives its withdrawal by more than ten seconds:
//
//   - A cluster is served while package hubaccess says so. When that ends, all
//     connections to its agent are closed, with the requests on them. A new connection
//     needs a cluster that is served, and an agent whose certificate was issued for the
//     ManagedCluster that has the name now.
//   - An agent's certificate that a handshake would not accept any more gets no new
//     requests (agentclient.Client.Recheck).
//   - A user's right, token or certificate: new requests are refused after at most 5 s,
//     for which answers of the hub are cached. Streams that are open (watches, logs,
//     exec, attach, port-forward, upgrades, CONNECT) are revalidated every
//     --revalidate-streams, by the filters that let them in and with the headers that
//     they came with (filter_revalidation.go). A stream that would be refused is cut;
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
//     within 4 s, whoever the caller is (filter_exposure.go). If its entry is not anonymous
//     any more, those of callers without a credential do.
//
// # Readiness
//
// Ready means that this process can answer: it knows the clusters, has a certificate, and
// has tried to reach its peers.
// Without a proxy server it still is, and answers requests to clusters with 503; a
// metric (proxy_server_reachable) and the log say so. Were it not, all replicas would
// leave the Service at once and the APIService of the aggregated API would be
// unavailable, which stalls the hub's own garbage collection and the deletion of its
// namespaces.
//
// # What one user may take
//
// Everyone who reaches the port can make it work on ClientHellos: package handshakes
// bounds how many are worked on at a time, and lets sources take turns.
//
// Numbers of requests and streams are bounded by user and by cluster (flags), and so is
// what may lie in memory because it is not read: 128 MiB for a user and 512 MiB for a
// cluster, in each direction. A request's body counts with its length, up to the 1 MiB
// that HTTP/2 takes before it is read; one too many is 429. An answer counts, with 1 MiB
// (a watch: 256 KiB), while its client has not read for a second. Clients that pause are
// waited for, but one pause too many is cut off (requests_rejected_total, reason unread). Headers
// of answers are 256 KiB at most, whatever they come by, and informational ones five: an
// agent is one cluster's, and may be anyone's.
//
// While most of a memory limit is used, requests are answered 503 (package memlimit),
// and what is open goes on.
//
// There is no limit of bytes per second. A slow reader or writer delays no one else,
// since every stream has its own window and every cluster several connections, and the
// network's share is what TCP gives each connection. A limit in the process would have
// to know the narrowest link on the way, which is a different one for each cluster; and
// what a user reads fast costs the managed kube-apiserver, whose own flow control knows
// the user. Bandwidth is best bounded where it is narrow: in the network.
//
// # Graceful shutdown
//
// On the first signal /readyz fails, and new requests are served for the minimum drain
// duration. Then the listener closes, watches end as if their time were up, and requests
// in flight, upgraded connections included, may go on for --graceful-shutdown-timeout. At
// the end the other replicas get what they need to go on with watches of views.
//
// # Out of scope
//
// Bodies are not in the audit log: they are streamed. What a user may do on a cluster is
// decided by the cluster's RBAC, as the agent impersonates the user there.
//
// # Files
//
// Those of a request are above. The others:
//
//	server.go       listens, serves, drains
//	parts.go        what a Server asks the hub with, and runs in the background
//	options.go      flags
//	metrics.go      all metrics
//	prober.go       whether a proxy server can be reached
//	filters.go      what the filters decide with, and how a request is refused
//	limiter.go      counts by user and by cluster
//	fleet.go        requests for views: what package fleetview gets to know and to use
//	definitions.go  what views are made of: FleetViews, ResourceRegistries, all clusters
//	members.go      one cluster of a view, for one request
//	peers.go        the other replicas: finds, greets, asks and tells them
//	peerport.go     the port for them, and who may use it
//	karmada.go      requests for clusters and views in Karmada's API
//	services.go     the allowlist of Services, and their logins
//	via.go          requests that come a second time
//	pace.go         answers that their client does not read
//	watch.go        the body of a watch, which ends when the process drains
//	latencies.go    how long clusters take to answer, and how often they did
//	fleetviews.go   the list of FleetViews, for the page
//	cookies.go      keeps cookies of clusters and Services below their paths
//	status.go       what an error is as a metav1.Status
//	scheme.go       the kinds of the aggregated API
//	apigroup.go     discovery, OpenAPI and the kinds of the aggregated API
//	storage.go      clusters of the aggregated API
//	sessions.go     what users have open here
//	sessionstream.go
//	                the streams of sessions: counts them, ends them
//	sessionpeers.go sessions of the other replicas
//	recorder.go     which sessions are recorded, and what becomes of those that cannot be
//	recordingoptions.go
//	                flags of recordings
//	sessionstorage.go
//	                sessions of the aggregated API, those of all replicas
//	karmadaclusters.go
//	                clusters of Karmada's API
//	registries.go   ResourceRegistries of Karmada's API, and what they are stored as
//	whoami.go       clusters/<name>/identity
package proxyapi
