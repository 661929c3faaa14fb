// Package hubaccess asks the hub who calls, what they may do, and which managed
// clusters there are. It knows the hub's Kubernetes API and nothing of how requests
// are relayed or of tunnels. The proxy API uses all of it. The proxy servers use
// Clusters alone, with a service account that may list and watch ManagedClusters and
// ManagedClusterAddOns.
//
// # Who calls
//
// Authenticator finds the user of a request by client certificate, by the hub's front
// proxy, or by TokenReview. A caller whom the hub does not know may still be a user of
// a managed cluster, whose credential is then sent there; so the words "the hub does
// not know this token" are as important as "this is the token of jane". Only a
// TokenReview that says "invalid bearer token" and nothing else, or adds only that no
// key of the hub made the signature, means that (tokenreview.go). All other answers
// are errors, and an error is never cached.
//
// # How often unverified credentials may be tried
//
// A credential is unverified until the hub or a cluster accepted it once. Requests
// with unverified credentials are rate limited, so that a flood of bad tokens costs
// neither the hub nor users with good ones: from each source (an IPv4 address, an
// IPv6 /64), from each network (/16, /40), and from all together, which also bounds a
// flood that cycles through addresses. JWTs of an issuer and key of which the hub knew
// a token before have limits of their own: a flood of other tokens takes nothing from
// a token that is new and good, even from the same address (clients behind one NAT).
// A flood of tokens that copy issuer and key does, until the good one was accepted
// once; so does any flood to new tokens that are no JWTs, or a cluster's. The hub is
// asked about at most 32 unverified credentials at a time, and sources take turns.
// Refusals above the limits are delayed a little, because an immediate refusal invites
// the next request. Questions about open streams, whose credentials the hub knew, are not
// limited: a flood must not hide that it knows one no more.
//
// # What they may do
//
// Authorizer asks the hub by SubjectAccessReview and believes an answer for 5 s. A right
// to a cluster is clusters/proxy with its name and the verb of the request, and create on
// clusters/stream for requests that leave the Kubernetes API. The right to the metrics of its
// agents is get on clusters/metrics, which neither of these implies. The same subresources of
// clustersets, with the name of a ManagedClusterSet, are the right to each cluster that
// is in the set (both types of selectors). A cluster is asked about by its name first. If
// that is denied the hub is asked about all sets, whatever sets the cluster is in, so that
// the time that a refusal takes does not tell whether there is such a cluster. Users who may
// change the labels of ManagedClusters, or the sets, decide with that who may reach them:
// OCM guards both by its own right managedclustersets/join.
//
// It also answers which clusters of many a user may reach with a verb: one question for
// all clusters, and if that is denied, one for each set, and one for each cluster that is
// left; once at a time for each user, verb and view. The hub's answers are remembered by
// cluster (memory), so that the next list asks about few of them:
//
//   - That a user may is believed for 5 s, as everywhere. If asking about the rest takes longer,
//     the list asks about it again at its end. Where the hub needs more than 5 s for all that it
//     allows (some thousand clusters by name), the list is late, and a view asks once more
//     before it sends a request to a cluster.
//   - That a user may not is believed for 5 s in lists of up to 500 clusters, and for 10 ms for
//     each cluster of more: 50 s of 5,000, a minute at most. A cluster for which a right was just
//     given may be missing from lists and views for so long. A request to the cluster itself
//     asks on its own. Entries past half their time are refreshed after a list, while nobody
//     waits, so that a user who lists again and again never waits for denials.
//   - A list that takes longer than 30 s is an error (ErrUnfinished) and no part of a list.
//     The next try goes on with what is missing, as it does after a list that nobody waits
//     for any more: that asks nothing new.
//   - 16 questions are asked at a time, for all users together. Users take turns, however many
//     lists each waits for.
//   - A list that was made is used again for 5 s, in which the hub said all that it allows. Half a
//     million answers are remembered, 32 MiB, and an eighth of them for one user's name; four names
//     of such lists count as an answer. The entry used least lately goes first, and all go after a minute.
//
// # Fleet views
//
// Views watches FleetViews and ManagedClusterSets. get on the FleetView is all the right
// that a view itself needs, and the view grants nothing: which of its clusters a user
// may reach is asked as above. A view has the served clusters that it selects. A hub may
// have neither kind, or be one on which we may not read them. Then there are no views and
// no sets, nothing else is hurt, and they are looked for again at times. Until it is known
// which sets there are, a cluster that is denied by name is an error and no refusal, so
// that nobody with a right to a set is cut off by a restart. Nothing waits for views.
//
// # Karmada's ResourceRegistries
//
// Registries watches the objects that Karmada's ResourceRegistries are stored as. Each selects
// resources by kind, and clusters by name, label and two ClusterClaims. One that asks for
// something else, such as a field that OCM does not have of clusters, has its resources and no
// cluster. Rights to clusters may be asked for in Karmada's API group (Right.In); they have
// nothing to do with those in the addon's.
//
// # While the hub cannot be asked
//
// It cannot have changed its mind. Outage remembers what it answered: the user of a
// token, that it does not know a token, and that a user may do something to a cluster
// (the whole question, with groups and verb). If the hub's kube-apiserver cannot be
// asked, the same question has the same answer for the grace (--hub-outage-grace, 10
// minutes) after it was last answered (and the 5 s for which answers are cached in any
// case), and never beyond the expiry in a JWT. "Cannot be asked" is a connection that
// fails, a time-out, and 5xx or 429 as answer; a refusal is an answer, and deletes what
// is remembered. The chart gives these questions a priority level of their own at the hub, so that
// whoever overloads that of all service accounts makes no 429. An authentication webhook of the hub that does not answer is not an
// outage either: the hub was asked.
//
// One failed question makes no outage: a probe must fail too, in which no client has a
// part (Outage.look). Otherwise a user who lost a right could keep it by tokens that
// the hub fails on. A slow hub is not away either: a probe may take 6 s, and those who wait
// share one. From then on no question that has a past answer waits for the hub, and
// the hub is probed every second until it has answered three times in a row. Remembered
// answers have 32 MiB at most. Each replica remembers what it was asked itself, and
// one that starts in an outage remembers nothing. The log, an annotation of audit
// events and metrics (hub_outage, hub_outage_answers_total) show it.
//
// The list of clusters stays valid as it was read last. Before the first answer
// Clusters.Synced returns an error, and the caller decides: the proxy API refuses
// requests, a proxy server admits agents by their certificate alone and looks at them
// again after the answer.
//
// # Which clusters are served
//
// A cluster is served while all of this holds:
//
//   - a ManagedCluster of that name exists and is not being deleted,
//   - the hub accepts it (spec.hubAcceptsClient),
//   - its ManagedClusterAddOn cluster-proxy exists and is not being deleted.
//
// OnGone functions run as soon as one of these ends, and also when an object was
// replaced by another one with the same name, which a watch may report as one
// update. A ManagedCluster that returns under its old name is another cluster.
//
// # Whose agent a certificate belongs to
//
// A certificate of an agent holds the UID of the ManagedCluster that it was issued
// for, as an organizational unit (identity.ClusterUnit). Admit compares the two.
// Certificates that older addon managers issued have no UID. They are admitted if
// they were issued after the ManagedCluster was created, because then they cannot
// belong to the previous holder of the name; so an upgrade cuts no agent off, and
// OCM's registration agent replaces these certificates as soon as the addon manager
// asks for the new subject.
//
// A hub that is rebuilt from a backup of its objects has new UIDs. OCM's
// registration agents see the changed subject and ask for certificates by
// themselves; agents are refused until that is done, which takes seconds.
//
// # Files
//
//	authenticator.go  who sends a request
//	tokenreview.go    what the hub's answer about a token means
//	ratelimit.go      how often unverified credentials may be tried
//	queue.go          whose credential, or whose list, the hub is asked about next
//	authorizer.go     what a user may do
//	rights.go         rights to clusters, by name and by set, and to views
//	reachable.go      lists of what a user may do, asked once at a time
//	remembered.go     what the hub said of each name of a list, and lists that were made
//	outage.go         past answers stand while the hub cannot be asked
//	pastanswers.go    past answers, in a bounded number of bytes
//	clusters.go       the watch of clusters and what it keeps of each object
//	selection.go      which clusters a FleetView selects, which sets a cluster is in
//	views.go          the watch of FleetViews and ManagedClusterSets
//	registryselection.go
//	                  what of which clusters a ResourceRegistry selects
//	registries.go     the watch of ResourceRegistries
//	admit.go          which clusters and agents are served
//	errors.go         the error of a request that is refused
package hubaccess
