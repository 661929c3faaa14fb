package fleetindexer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// namedResources is how many resources a refusal names, and nearResources how many of those that are named much like what was asked for,
// which has no more than maxNear bytes then.
const namedResources, nearResources, maxNear = 20, 3, 63

// checkKinds refuses a query that wants a kind which is not indexed: that nothing is found does not mean that there is none. It
// knows the names in the process's configuration, and the kinds of feeds that the caller may list, and of no other.
func (s *search) checkKinds(feeds []fleetindex.Searched) error {
	for _, t := range s.query.Of(query.Kind) {
		for _, value := range t.Values {
			if t.Not || slices.ContainsFunc(s.resources, func(r feed.Resource) bool { return names(value, r) }) {
				continue
			}
			isListed := func(f fleetindex.Searched) bool {
				scope := s.scopes[f.FeedName]
				return (scope.All || len(scope.Namespaces) > 0) && slices.ContainsFunc(f.Definition.Names(), value.Match)
			}
			if !slices.ContainsFunc(feeds, isListed) {
				return status.New(http.StatusBadRequest, fmt.Sprintf("kind:%s names nothing that is in the fleet index%s, which has %s: "+
					"ask the clusters about others, as with \"kubectl get\" in the context of a view", value, s.nearNames(value), s.indexedNames()))
			}
		}
	}
	return nil
}

// names reports whether a value of a query names a resource, as it is called or as its kind usually is.
func names(v query.Value, r feed.Resource) bool {
	return slices.ContainsFunc(resourceNames(r), v.Match)
}

// resourceNames returns what a resource is called, and what its kind usually is.
func resourceNames(r feed.Resource) []string {
	all := r.Names()
	singular := []string{strings.TrimSuffix(r.Resource, "s"), strings.TrimSuffix(r.Resource, "es")}
	if stem, ok := strings.CutSuffix(r.Resource, "ies"); ok {
		singular = append(singular, stem+"y")
	}
	all = append(all, singular...)
	for _, one := range singular {
		if r.Group != "" {
			all = append(all, one+"."+r.Group)
		}
	}
	return all
}

// nearNames returns what is indexed and named much like a value, as a part of a sentence.
func (s *search) nearNames(v query.Value) string {
	wanted, _, _ := strings.Cut(strings.ToLower(string(v)), ".")
	isNear := func(name string) bool {
		name, _, _ = strings.Cut(name, ".")
		return len(wanted) <= maxNear && edits(wanted, name) <= min(2, len(name)/3)
	}
	var near []string
	for _, r := range s.resources {
		if len(near) < nearResources && slices.ContainsFunc(resourceNames(r), isNear) {
			near = append(near, r.String())
		}
	}
	if len(near) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(near, " or ") + "?)"
}

// edits returns how many bytes must be put in, taken out or replaced, or exchanged with their neighbours, to make one text of another.
func edits(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		now[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			now[j+1] = min(last[j+1]+1, now[j]+1, replaced)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

// indexedNames lists what is indexed.
func (s *search) indexedNames() string {
	var all []string
	for _, r := range s.resources[:min(len(s.resources), namedResources)] {
		all = append(all, r.String())
	}
	text := strings.Join(all, ", ")
	if more := len(s.resources) - len(all); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
