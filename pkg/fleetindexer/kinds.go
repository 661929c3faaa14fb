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

// namedResources is how many resources a refusal names.
const namedResources = 20

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
				return (scope.All || len(scope.Namespaces) > 0) && value.Match(f.Definition.Kind)
			}
			if !slices.ContainsFunc(feeds, isListed) {
				return status.New(http.StatusBadRequest, fmt.Sprintf("kind:%s names nothing that is in the fleet index, which has %s: "+
					"ask the clusters about others, as with \"kubectl get\" in the context of a view", value, s.indexedNames()))
			}
		}
	}
	return nil
}

// names reports whether a value of a query names a resource, as it is called or as its kind usually is.
func names(v query.Value, r feed.Resource) bool {
	plural := r.Resource
	kinds := []string{plural, r.String(), strings.TrimSuffix(plural, "s"), strings.TrimSuffix(plural, "es")}
	if stem, ok := strings.CutSuffix(plural, "ies"); ok {
		kinds = append(kinds, stem+"y")
	}
	return slices.ContainsFunc(kinds, v.Match)
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
