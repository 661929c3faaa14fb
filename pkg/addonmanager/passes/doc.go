// Package passes makes the service accounts of Passes, which have no rights, and deletes Passes that
// have expired. It has no right to what else belongs to them.
//
// # What a pass is
//
// The kubectl plugin makes a Pass (the record and the owner) and what grants something: a ClusterRole
// with the names of the clusters, its binding, a token of the Pass's account, and ManifestWorks if
// roles on the clusters are asked for. It does so with the rights of the user who runs it. Kubernetes' own rule therefore holds: nobody
// grants by RBAC what they do not have. No process of the addon makes rights for others, which
// would take the verbs escalate and bind.
//
// A Pass grants nothing, and nobody compares it with what belongs to it: a maker who does not
// use the plugin may bind more to the account than the Pass says, of their own rights. Such a maker
// can bind the same to anybody without a Pass. Certain are its maker and its end, and
// that all that belongs to it ends then.
//
// # Who may do what to whose pass
//
// In one namespace, RBAC cannot tell the passes of one maker from those of another: the right to
// make tokens there is one to the tokens of all. ValidatingAdmissionPolicies of the chart do:
//
//   - spec.madeBy of a Pass is the user who creates it, and a spec never changes. A Pass lasts
//     passes.maxHours at most.
//   - The tokens and the end of an account, whose name is made of the Pass's name and UID, are for
//     the Pass's maker. Others may end a pass if they have the verb revoke on it. The parameters of
//     this policy are all Passes, which a kube-apiserver reads a moment late.
//   - Nobody but this package makes accounts in the namespace, and none of the accounts has tokens
//     but those of Passes. The account of a Pass that has ended is therefore never there again, and
//     what is still bound to it is nobody's: a binding on a managed cluster that is away stays there
//     for longer than the pass, and a role that the cluster's owner bound stays for ever.
//
// A Pass is deleted in the foreground: it stays until the account, the role and the binding are
// gone, so that its maker sees when it has ended. The UID in the account's name keeps passes of one name
// apart.
//
// # How a pass ends
//
// The token has the end that is in spec.expires, or an earlier one if the hub wants that. A
// maker can have later tokens for the account, but the account is gone when this package has
// deleted the Pass. While the addon manager is away, passes stay and their first tokens
// end all the same.
//
// To revoke a pass means the same earlier. Without its service account the token is no
// good, which a kube-apiserver may notice 10 s later; without the binding, it has no rights,
// which is noticed at once. The proxy API asks about open streams again and again.
//
// While the addon manager is away no pass is made either: the plugin waits for the account and
// undoes the pass after 30 s.
//
// A pass has expired when both the addon manager's clock and the hub's say so: one that jumps ahead deletes nothing. The
// expiry is by the maker's clock: a pass lives shorter or longer by the difference. The token's end is by the hub's clock.
//
// # Files
//
//	reconciler.go  Reconciler
package passes
