package fleetview

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// places are where the request's objects have selectors and names.
func (q *request) places() merge.Places {
	if q.info == nil {
		return nil
	}
	return merge.PlacesOf(q.info.APIGroup, q.info.Resource, q.info.Subresource)
}

// restorer makes a Restorer for the request's objects. It is not complete.
func (q *request) restorer() *merge.Restorer {
	r := q.info.Resource
	return &merge.Restorer{
		Annotations: append([]string{AnnotationCluster}, q.view.Annotations...), Label: AnnotationCluster,
		Places: q.places(), Derived: r == "pods" && q.info.APIGroup == "" || r == "events",
	}
}

// mentions are the clusters that a request's body names: its object's name, its annotation,
// its labels and its selector, or the name of another object that it refers to. The
// member says what is wrong with the body.
func (q *request) mentions(media string, body []byte) (clusters []string, qualified bool) {
	if !bytes.ContainsAny(body, `@\`) && !bytes.Contains(body, []byte(AnnotationCluster)) {
		return nil, false // most bodies do not, and nothing in this one is written in another way
	}
	restorer := q.restorer()
	restorer.Version = func(text string) (string, error) { return text, nil }
	restorer.Note = func(m merge.Mention) {
		cluster := m.Cluster
		if cluster == "" {
			var ok bool
			if _, cluster, ok = q.cut(m.Name); !ok {
				return
			}
		}
		qualified = qualified || !m.Annotation
		if !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	_, _ = q.appendBody(restorer, media, body)
	return clusters, qualified
}

// clusterOf is the cluster that the object in a request names, and notes whether it does
// otherwise than by its annotation; empty if it names none.
func (q *request) clusterOf(media string, body []byte) (string, error) {
	clusters, qualified := q.mentions(media, body)
	switch {
	case len(clusters) > 1:
		return "", manyClusters(clusters[0], clusters[1])
	case len(clusters) == 0:
		return "", nil
	}
	q.qualified = q.qualified || qualified && !q.inNamespace
	return clusters[0], nil
}

// agrees refuses an object that names another cluster than the one that it is written to.
func (q *request) agrees(to Member, media string, body []byte) error {
	clusters, _ := q.mentions(media, body)
	for _, cluster := range clusters {
		if cluster != to.Name() && slices.Contains(q.everyone, cluster) {
			return manyClusters(to.Name(), cluster)
		}
	}
	return nil
}

func manyClusters(one, other string) error {
	return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("the request names clusters %q and %q: let the object's name, its annotation and label %s, its selector, and the names of other objects in it name one, or none",
		one, other, AnnotationCluster))
}

// readable are the forms of an answer in which what leads to the cluster can be written.
// Selectors are in JSON only, which each client accepts that asks for protobuf.
func (q *request) readable(accepted []form) []form {
	if !q.leads() || len(q.places().Selectors()) == 0 {
		return accepted
	}
	return slices.DeleteFunc(slices.Clone(accepted), func(f form) bool { return f.protobuf && f.as == "" })
}

// leads reports whether the answer has one object, whose name leads to its cluster. Its
// selector does too then.
func (q *request) leads() bool { return q.ofOne() && q.qualifies() }

// ofOne reports whether the answer has one object.
func (q *request) ofOne() bool { return !q.collection() || q.info.Verb == "create" }

// qualifies reports whether answers have names NAME@CLUSTER.
func (q *request) qualifies() bool { return q.qualified || q.view.Qualified && !q.inNamespace }

// leading is rewriter for an answer to get or to a write. The configuration that kubectl has
// applied gets the object's names too: kubectl compares it with what it is given the next time.
func (q *request) leading(m Member, at version.Version) *merge.Rewriter {
	rewriter := q.rewriter(m, at)
	if q.ofOne() && (q.qualifies() || q.inNamespace) {
		rewriter.Label = AnnotationCluster
	}
	if q.leads() {
		rewriter.Places = q.places().Selectors()
	}
	return rewriter
}

// rewriter makes a member's objects those of the view.
func (q *request) rewriter(m Member, at version.Version) *merge.Rewriter {
	number := version.Number(m.UID())
	return &merge.Rewriter{
		Cluster: m.Name(), Annotations: append([]string{AnnotationCluster}, q.view.Annotations...),
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
