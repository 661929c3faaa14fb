package request

import (
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// leads reports whether the answer has one object, whose name leads to its cluster. Its
// selector does too then.
func (q *Request) leads() bool { return q.ofOne() && q.qualifies() }

// ofOne reports whether the answer has one object.
func (q *Request) ofOne() bool { return !q.Collection() || q.Info.Verb == "create" }

// qualifies reports whether answers have names NAME@CLUSTER.
func (q *Request) qualifies() bool { return q.qualified || q.View.Qualified && !q.inNamespace }

// Leading is Rewriter for the answer to a get or to a write. The configuration that kubectl has
// applied gets the object's names too: kubectl compares it with what it is given the next time.
func (q *Request) Leading(m fleet.Member, at version.Version) *merge.Rewriter {
	rewriter := q.Rewriter(m, at)
	if q.ofOne() && (q.qualifies() || q.inNamespace) {
		rewriter.Label = fleet.AnnotationCluster
	}
	if q.leads() {
		rewriter.Places = q.places().Selectors()
	}
	return rewriter
}

// Rewriter makes a member's objects those of the view.
func (q *Request) Rewriter(m fleet.Member, at version.Version) *merge.Rewriter {
	number := version.Number(m.UID())
	return &merge.Rewriter{
		Cluster: m.Name(), Annotations: append([]string{fleet.AnnotationCluster}, q.View.Annotations...),
		Qualified: q.qualifies(), QualifiedNamespace: q.inNamespace,
		Misleading: func(name string) bool {
			_, _, ok := q.cut(name)
			return ok
		},
		Version: func(member string) string {
			if sent, ok := q.sent[member]; ok {
				return sent
			}
			return version.Version{Time: at.Time, Replica: at.Replica, Cluster: number, Member: version.OfMember(member)}.String()
		},
	}
}
