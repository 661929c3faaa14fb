package fleetview

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// rewriteAnswer makes an object, or a Table of one, the view's, and leaves a Status as it
// is. Its result is no part of body, which others may borrow then.
func rewriteAnswer(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
	if len(body) == 0 {
		return body, nil
	}
	longer := make([]byte, 0, len(body)+rewriteRoom)
	var indexer merge.Indexer
	item, err := indexer.Item(body)
	if err != nil {
		return nil, err
	}
	key, err := merge.KeyOfItem(item)
	switch {
	case err != nil || key.Kind == "Status":
		return bytes.Clone(body), err
	case key.Kind == "Table":
		return rewriteList(rewriter, body)
	}
	answer, err := rewriter.AppendItem(longer, item)
	if err == nil && bytes.HasSuffix(body, []byte("\n")) {
		answer = append(answer, '\n')
	}
	return answer, err
}

// rewriteRoom is about how much longer an object of a view is.
const rewriteRoom = 256

// rewriteDeleted is rewriteAnswer for the answer to deletecollection, which may be a list
// of what was deleted.
func rewriteDeleted(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
	if key, err := merge.KeyOfJSON(body); err != nil || key.Kind == "Status" {
		return body, err
	}
	return rewriteList(rewriter, body)
}

// rewriteList makes a Table or a list in JSON the view's.
func rewriteList(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
	reader := merge.NewReader(bytes.NewReader(body))
	item, err := reader.Next()
	if err != nil && !eof(err) {
		return nil, err
	}
	out, add := []byte(openingItems), rewriter.AppendItem
	var columns []byte
	if reader.Columns() != nil {
		var table merge.Table
		layout, err := table.Add(reader.Columns())
		if err != nil {
			return nil, err
		}
		out, columns = []byte(openingRows), table.Definitions()
		add = func(dst []byte, row merge.Item) ([]byte, error) { return layout.AppendRow(dst, row, rewriter) }
	}
	for begin := len(out); err == nil; item, err = reader.Next() {
		if len(out) > begin {
			out = append(out, ',')
		}
		if out, err = add(out, item); err != nil {
			return nil, err
		}
	}
	if !eof(err) {
		return nil, err
	}
	meta := reader.Meta()
	closing, err := ending(meta, listMeta{ListMeta: metav1.ListMeta{ResourceVersion: rewriter.Version(meta.ResourceVersion)}}, columns)
	return append(out, closing...), err
}

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
		Annotations: append([]string{fleet.AnnotationCluster}, q.view.Annotations...), Label: fleet.AnnotationCluster,
		Places: q.places(), Derived: r == "pods" && q.info.APIGroup == "" || r == "events",
	}
}

// mentions are the clusters that a request's body names: its object's name, its annotation,
// its labels and its selector, or the name of another object that it refers to. The
// member says what is wrong with the body.
func (q *request) mentions(media string, body []byte) (clusters []string, qualified bool) {
	if !bytes.ContainsAny(body, `@\`) && !bytes.Contains(body, []byte(fleet.AnnotationCluster)) {
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
func (q *request) agrees(to fleet.Member, media string, body []byte) error {
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
		one, other, fleet.AnnotationCluster))
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
func (q *request) leading(m fleet.Member, at version.Version) *merge.Rewriter {
	rewriter := q.rewriter(m, at)
	if q.ofOne() && (q.qualifies() || q.inNamespace) {
		rewriter.Label = fleet.AnnotationCluster
	}
	if q.leads() {
		rewriter.Places = q.places().Selectors()
	}
	return rewriter
}

// rewriter makes a member's objects those of the view.
func (q *request) rewriter(m fleet.Member, at version.Version) *merge.Rewriter {
	number := version.Number(m.UID())
	return &merge.Rewriter{
		Cluster: m.Name(), Annotations: append([]string{fleet.AnnotationCluster}, q.view.Annotations...),
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
