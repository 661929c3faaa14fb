package fleetview

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// atSign matches what has an @ in a label selector. No label has one, in its key or in its
// value, so it is NAME@CLUSTER: kubectl lists the slices of a Service by the Service's name.
var atSign = regexp.MustCompile(`[^\s=!(),<>]*@[^\s=!(),<>]*`)

// chooseByLabels takes clusters out of the label selector.
func (q *request) chooseByLabels() error {
	const parameter = "labelSelector"
	text := q.query.Get(parameter)
	if !strings.Contains(text, "@") && !strings.Contains(text, AnnotationCluster) {
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
		if requirement.Key() == AnnotationCluster {
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
func (q *request) chooseByLabel(requirement labels.Requirement) error {
	switch requirement.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		q.terms = append(q.terms, clusterTerm{requirement.ValuesUnsorted(), true})
	case selection.NotEquals, selection.NotIn:
		q.terms = append(q.terms, clusterTerm{requirement.ValuesUnsorted(), false})
	case selection.Exists: // each object of a view is of a cluster
	default:
		return fault.Refuse(http.StatusBadRequest, fmt.Sprintf("label %s is on each object of a view, and a name: list without %s, or choose clusters with =, !=, in and notin", AnnotationCluster, AnnotationCluster))
	}
	return nil
}

// named takes the cluster off the names that a requirement has for values.
func (q *request) named(requirement labels.Requirement, value func(string) string) (labels.Requirement, error) {
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
			return requirement, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("label selector %q names cluster %q in a part of its values: write names without clusters, and choose the cluster with %s=%s", requirement.Key(), clusters[0], AnnotationCluster, clusters[0]))
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
