package fleetview

import (
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// clusterField is the field selector that chooses clusters. AnnotationCluster is the label
// selector that does.
const clusterField = "metadata.cluster"

// namingFields are fields whose value may be NAME@CLUSTER. Events of nodes have the node's
// name for its uid.
var namingFields = []string{
	"metadata.name", "metadata.namespace", "spec.nodeName", "spec.podName", "spec.serviceAccountName", "status.nominatedNodeName",
	"involvedObject.name", "involvedObject.namespace", "involvedObject.uid", "regarding.name", "regarding.namespace", "regarding.uid",
}

// plainFields are those of them whose values have no @ of their own: NAME@CLUSTER with a cluster
// that the view does not have is refused, as a list of nothing would be taken for the answer.
var plainFields = []string{"metadata.namespace", "spec.nodeName", "status.nominatedNodeName", "involvedObject.namespace", "regarding.namespace"}

// clusterTerm is what a request says of clusters: that it is about one of some, or about
// none of them.
type clusterTerm struct {
	clusters []string
	equal    bool
}

// chooseBySelector finds out which clusters the request's selectors name, and takes that
// part out of the selectors: members do not know it. The answer of a list that is of one
// cluster then calls objects NAME@CLUSTER, so that what is done next with them is done there.
func (q *request) chooseBySelector() error {
	before := len(q.terms)
	if err := q.chooseByFields(); err != nil {
		return err
	}
	if err := q.chooseByLabels(); err != nil {
		return err
	}
	if len(q.terms) > before {
		q.members = q.narrow(q.members)
		q.qualified = q.chosen() && !q.inNamespace
	}
	return nil
}

// setSelector puts a selector back, or takes it away if nothing is left of it.
func (q *request) setSelector(parameter, text string) {
	q.query.Del(parameter)
	if text != "" {
		q.query.Set(parameter, text)
	}
}

// chooseByFields takes clusters out of the field selector.
func (q *request) chooseByFields() error {
	const parameter = "fieldSelector"
	if !q.query.Has(parameter) {
		return nil
	}
	selector, err := fields.ParseSelector(q.query.Get(parameter))
	if err != nil {
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the field selector: %v", err))
	}
	before := len(q.terms)
	var rest []fields.Selector
	var doubt error
	for _, requirement := range selector.Requirements() {
		field, value, equal := requirement.Field, requirement.Value, requirement.Operator != selection.NotEquals
		if field == clusterField {
			q.terms = append(q.terms, clusterTerm{[]string{value}, equal})
			continue
		}
		plain, cluster, ok := q.cut(value)
		if slices.Contains(plainFields, field) {
			plain, cluster, ok = cutLast(value)
		}
		switch naming := slices.Contains(namingFields, field); {
		case !ok:
		case naming && equal:
			q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
			value = plain
		case naming:
			return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("field selector %s!=%s is of one cluster and of all others: choose one, as %s=%s,%s!=%s", field, value, clusterField, cluster, field, plain))
		default:
			doubt = fault.Refuse(http.StatusBadRequest, fmt.Sprintf("field selector %s takes no cluster, and value %q may mean one: choose the cluster with %s=%s", field, value, clusterField, cluster))
		}
		if equal {
			rest = append(rest, fields.OneTermEqualSelector(field, value))
		} else {
			rest = append(rest, fields.OneTermNotEqualSelector(field, value))
		}
	}
	if doubt != nil && !q.chosen() {
		return doubt
	}
	if len(q.terms) == before {
		return nil
	}
	text := ""
	if len(rest) > 0 {
		text = fields.AndSelectors(rest...).String()
	}
	q.setSelector(parameter, text)
	return nil
}

// narrow leaves the clusters of which the view has what is requested, and that the request
// is about. A watch asks it again when the clusters of the view have changed.
func (q *request) narrow(members []Member) []Member {
	members = q.having(members)
	for _, term := range q.terms {
		members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return slices.Contains(term.clusters, m.Name()) != term.equal })
	}
	return members
}

// having leaves the clusters of which the view has what is requested.
func (q *request) having(members []Member) []Member {
	if slices.ContainsFunc(q.rules, func(rule ResourceRule) bool { return rule.Clusters != nil }) {
		members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !ruled(q.rules, m.Name()) })
	}
	return members
}

// chosen reports whether the request names its cluster.
func (q *request) chosen() bool {
	return slices.ContainsFunc(q.terms, func(term clusterTerm) bool { return term.equal && len(term.clusters) == 1 })
}
