package request

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// ClusterField is the field selector that chooses clusters. AnnotationCluster is the label
// selector that does.
const ClusterField = "metadata.cluster"

// namingFields are fields whose value may be NAME@CLUSTER. Events of nodes have the node's
// name for its uid.
var namingFields = []string{
	"metadata.name", "metadata.namespace", "spec.nodeName", "spec.podName", "spec.serviceAccountName", "status.nominatedNodeName",
	"involvedObject.name", "involvedObject.namespace", "involvedObject.uid", "regarding.name", "regarding.namespace", "regarding.uid",
}

// plainFields are those of them whose values have no @ of their own: NAME@CLUSTER with a cluster
// that the view does not have is refused, as a list of nothing would be taken for the answer.
var plainFields = []string{"metadata.namespace", "spec.nodeName", "status.nominatedNodeName", "involvedObject.namespace", "regarding.namespace"}

// chooseBySelector finds out which clusters the request's selectors name, and takes that
// part out of the selectors: members do not know it. The answer of a list that is of one
// cluster then calls objects NAME@CLUSTER, so that what is done next with them is done there.
func (q *Request) chooseBySelector() error {
	before := len(q.terms)
	if err := q.chooseByFields(); err != nil {
		return err
	}
	if err := q.chooseByLabels(); err != nil {
		return err
	}
	if len(q.terms) > before {
		q.Members = q.Narrow(q.Members)
		q.qualified = q.Chosen() && !q.inNamespace
	}
	return nil
}

// setSelector puts a selector back, or takes it away if nothing is left of it.
func (q *Request) setSelector(parameter, text string) {
	q.Query.Del(parameter)
	if text != "" {
		q.Query.Set(parameter, text)
	}
}

// chooseByFields takes clusters out of the field selector.
func (q *Request) chooseByFields() error {
	const parameter = "fieldSelector"
	if !q.Query.Has(parameter) {
		return nil
	}
	selector, err := fields.ParseSelector(q.Query.Get(parameter))
	if err != nil {
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the field selector: %v", err))
	}
	before := len(q.terms)
	var rest []fields.Selector
	var doubt error
	for _, requirement := range selector.Requirements() {
		field, value, equal := requirement.Field, requirement.Value, requirement.Operator != selection.NotEquals
		if field == ClusterField {
			q.terms = append(q.terms, clusterTerm{[]string{value}, equal})
			continue
		}
		plain, cluster, ok := q.cut(value)
		if slices.Contains(plainFields, field) {
			plain, cluster, ok = CutLast(value)
		}
		switch naming := slices.Contains(namingFields, field); {
		case !ok:
		case naming && equal:
			q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
			value = plain
		case naming:
			return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("field selector %s!=%s is of one cluster and of all others: choose one, as %s=%s,%s!=%s", field, value, ClusterField, cluster, field, plain))
		default:
			doubt = fault.Refuse(http.StatusBadRequest, fmt.Sprintf("field selector %s takes no cluster, and value %q may mean one: choose the cluster with %s=%s", field, value, ClusterField, cluster))
		}
		if equal {
			rest = append(rest, fields.OneTermEqualSelector(field, value))
		} else {
			rest = append(rest, fields.OneTermNotEqualSelector(field, value))
		}
	}
	if doubt != nil && !q.Chosen() {
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

// atSign matches what has an @ in a label selector. No label has one, in its key or in its
// value, so it is NAME@CLUSTER: kubectl lists the slices of a Service by the Service's name.
var atSign = regexp.MustCompile(`[^\s=!(),<>]*@[^\s=!(),<>]*`)

// chooseByLabels takes clusters out of the label selector.
func (q *Request) chooseByLabels() error {
	const parameter = "labelSelector"
	text := q.Query.Get(parameter)
	if !strings.Contains(text, "@") && !strings.Contains(text, fleet.AnnotationCluster) {
		return nil
	}
	// Names with an @ cannot be parsed, so something that can stands for them.
	stand := "name"
	for strings.Contains(text, stand) {
		stand += "-"
	}
	var names []string
	parsable := atSign.ReplaceAllStringFunc(text, func(name string) string {
		names = append(names, name)
		return stand + strconv.Itoa(len(names)-1)
	})
	requirements, err := labels.ParseToRequirements(parsable)
	if err != nil {
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading label selector %q: %v", text, err))
	}
	var rest []string
	for _, requirement := range requirements {
		if requirement.Key() == fleet.AnnotationCluster {
			if err := q.chooseByLabel(requirement); err != nil {
				return err
			}
			continue
		}
		if requirement, err = q.named(requirement, func(value string) string {
			if i, err := strconv.Atoi(strings.TrimPrefix(value, stand)); err == nil && strings.HasPrefix(value, stand) {
				return names[i]
			}
			return value
		}); err != nil {
			return err
		}
		rest = append(rest, requirement.String())
	}
	q.setSelector(parameter, strings.Join(rest, ","))
	return nil
}

// chooseByLabel notes the clusters that a requirement of the view's label names.
func (q *Request) chooseByLabel(requirement labels.Requirement) error {
	switch requirement.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		q.terms = append(q.terms, clusterTerm{requirement.ValuesUnsorted(), true})
	case selection.NotEquals, selection.NotIn:
		q.terms = append(q.terms, clusterTerm{requirement.ValuesUnsorted(), false})
	case selection.Exists: // each object of a view is of a cluster
	default:
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("label %s is on each object of a view, and a name: list without %s, or choose clusters with =, !=, in and notin", fleet.AnnotationCluster, fleet.AnnotationCluster))
	}
	return nil
}

// named takes the cluster off the names that a requirement has for values.
func (q *Request) named(requirement labels.Requirement, value func(string) string) (labels.Requirement, error) {
	var values []string
	var clusters []string
	for _, v := range requirement.ValuesUnsorted() {
		v = value(v)
		if plain, cluster, ok := q.cut(v); ok {
			v, clusters = plain, append(clusters, cluster)
		}
		values = append(values, v)
	}
	is := requirement.Operator() == selection.Equals || requirement.Operator() == selection.DoubleEquals || requirement.Operator() == selection.In
	if len(clusters) > 0 {
		if !is || len(clusters) < len(values) {
			return requirement, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("label selector %q names cluster %q in a part of its values: write names without clusters, and choose the cluster with %s=%s", requirement.Key(), clusters[0], fleet.AnnotationCluster, clusters[0]))
		}
		for _, cluster := range clusters {
			q.terms = append(q.terms, clusterTerm{[]string{cluster}, true})
		}
	}
	restored, err := labels.NewRequirement(requirement.Key(), requirement.Operator(), values)
	if err != nil {
		return requirement, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the label selector: %v", err))
	}
	return *restored, nil
}
