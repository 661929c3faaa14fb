// Package accesspolicy decides about requests by AccessPolicies. A policy restricts what RBAC allows:
// it selects requests by user and cluster, and has rules in CEL, all of which must be true of a
// request. The package is pure. It knows no HTTP, no tunnel and no hub: the proxy API says what a request is.
//
// # Data flow
//
// Compile makes a Policy of an object, and a Set holds those of all objects. Both are immutable: when an
// object changes, a new Set takes the place of the old one, and a request is decided by one of them. Decide asks
// the policies that select a request in the order of their names, and each one's rules in theirs, until a
// policy refuses. Policies in mode Warn and Audit object without refusing.
//
// # Expressions
//
// The language is that of k8s.io/apiserver: its environment, libraries, type checker and cost limit. Each rule may cost
// what one expression of a kube-apiserver may, and so may all rules of a policy together, which is about 0.1 s. Variables
// are documented with the kind; each of their fields is always there, and empty if it has no value. Keys of
// cluster.labels, cluster.claims and user.extra may be missing: cluster.labels[?'env'].orValue(”) reads them.
// A time zone that an expression names is found without files of the system.
//
// # What fails, refuses
//
// A rule that does not compile, is no bool, has no value (a key is missing), or costs too much, is a rule that is not
// true, with Reason Failed. So a policy with a broken rule refuses everything that it selects. A mode, or a kind
// of subject, that this release does not know, means Enforce and everybody. Where a cluster selection cannot be
// read, the caller passes Clusters that select all.
//
// # What cannot be seen
//
// Some requests do not show what they are about. CONNECT to a kube-apiserver shows its user, its cluster and the
// time (Sight Nothing). A search in the fleet index also shows that it lists, but not what (NoObjects). A rule that names
// more than is shown refuses such a request, with Reason Hidden, whatever its value would be. The type checker
// finds out what a rule names: the rule is compiled where only the fields that are shown are declared. An expression that
// gets around the type checker by dyn finds no value there, and fails.
//
// # Where policies are asked
//
// In the proxy API filter.Filters.Decide is the one question, with the reading of scope.Scope.PolicyRequest. It is asked for
// everything that goes to a cluster, after the hub has allowed it:
//
//   - filter.WithPolicies: the direct, host and aggregated endpoints, Karmada's clusters, Services, CONNECT, agents' metrics
//   - view.Member.RoundTrip and relayTo: each request to a cluster of a view, Karmada's too, before the fleet index
//   - view.permitted: each cluster of a search
//   - apigroup's identity of a caller on a cluster
//   - filter.Revalidation.AskPolicies: streams that are open, for each cluster; with --revalidate-streams=0 they are not asked again
//
// The kinds of the proxy API itself are not among them, and show no cluster's objects: sessions and recordings have rights of
// their own. Until policies were read once (clusters.Policies.Set) every request to a cluster is 503, and the process is
// not ready. Without the kind on the hub there are none. Discovery that a view composes of what it knows of its clusters'
// kinds may be from before a policy.
//
// # Callers
//
// A caller whom the hub does not know, and who may be a user of the managed cluster, is in no group and has no name. Policies
// without subjects select their requests, and those with subjects do not. A refusal does not tell them that there is such a
// cluster (filter.Filters.hidden).
//
// A policy selects a request if it selects the user or who impersonates them (Request.Impersonator), and its rules are
// asked with the one that it selects; if it selects both, with each. RBAC asks about the user alone, because it grants. A policy only
// restricts: nobody gets out of one by impersonating somebody whom it does not select, nor around one on a group
// by impersonating somebody in it.
// The proxy API knows who impersonates where it reads the headers itself. At the aggregated endpoint the hub's kube-apiserver
// does, and tells of the user alone. A caller with a token of another account is that account.
//
// ClusterClaims are a cluster's own words: a policy that reads them trusts the cluster. Labels and sets are the hub's.
//
// # Out of scope
//
// Bodies of requests: what an object may contain is the business of the cluster's own admission.
//
// # Files
//
//	policy.go       Set, and one policy: compiling it, whom it selects, its rules
//	environment.go  the variables of expressions, and what an expression reads
//	request.go      Request, and what policies say of one
package accesspolicy
