package fleetview

import (
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// clusterField is the field selector that chooses clusters.
const clusterField = "metadata.cluster"

// namingFields are fields whose value may be NAME@CLUSTER.
var namingFields = []string{"metadata.name", "involvedObject.name", "regarding.name"}

// clusterTerm is what a request says of clusters: that it is about one, or not.
type clusterTerm struct {
	cluster string
	equal   bool
}

// chooseBySelector finds out which clusters the request's field selector names, and takes
// that part out of the selector: members do not know it.
func (q *request) chooseBySelector() error {
	const parameter = "fieldSelector"
	if !q.query.Has(parameter) {
		return nil
	}
	selector, err := fields.ParseSelector(q.query.Get(parameter))
	if err != nil {
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the field selector: %v", err))
	}
	var rest []fields.Selector
	for _, requirement := range selector.Requirements() {
		equal := requirement.Operator != selection.NotEquals
		if requirement.Field == clusterField {
			q.terms = append(q.terms, clusterTerm{requirement.Value, equal})
			continue
		}
		if slices.Contains(namingFields, requirement.Field) && equal {
			if plain, cluster, ok := q.cut(requirement.Value); ok {
				q.terms = append(q.terms, clusterTerm{cluster, true})
				requirement.Value = plain
			}
		}
		if equal {
			rest = append(rest, fields.OneTermEqualSelector(requirement.Field, requirement.Value))
		} else {
			rest = append(rest, fields.OneTermNotEqualSelector(requirement.Field, requirement.Value))
		}
	}
	if len(q.terms) == 0 {
		return nil
	}
	q.query.Del(parameter)
	if len(rest) > 0 {
		q.query.Set(parameter, fields.AndSelectors(rest...).String())
	}
	q.members, q.missing = q.narrow(q.members, q.missing)
	return nil
}

// narrow leaves the clusters of which the view has what is requested, and that the request
// is about. A watch asks it again when the clusters of the view have changed.
func (q *request) narrow(members []Member, missing []Missing) ([]Member, []Missing) {
	if slices.ContainsFunc(q.rules, func(rule ResourceRule) bool { return rule.Clusters != nil }) {
		members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !ruled(q.rules, m.Name()) })
		missing = slices.DeleteFunc(slices.Clone(missing), func(m Missing) bool { return !ruled(q.rules, m.Cluster) })
	}
	for _, term := range q.terms {
		members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return (m.Name() == term.cluster) != term.equal })
		missing = slices.DeleteFunc(slices.Clone(missing), func(m Missing) bool { return (m.Cluster == term.cluster) != term.equal })
	}
	return members, missing
}

// chosen reports whether the request names its cluster.
func (q *request) chosen() bool {
	return slices.ContainsFunc(q.terms, func(term clusterTerm) bool { return term.equal })
}
