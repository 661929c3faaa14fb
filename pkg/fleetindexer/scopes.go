package fleetindexer

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// maxSearchQuestions bounds the new questions about single namespaces that one search asks, and maxNamedQuestions those of a
// search which names the namespaces.
const maxSearchQuestions, maxNamedQuestions = 500, 5000

// namespacesOfFeed is how many namespaces of a feed are looked at, of which some are asked about.
const namespacesOfFeed = 1000

// search is one search or count.
type search struct {
	*answers
	request indexapi.SearchRequest
	now     time.Time
	query   query.Query
	caller  *caller
	// clusters are those that the query can be about and the hub serves, by name.
	clusters map[string]fleetindex.Cluster
	// named is how many namespaces the query names.
	named int
	// scopes are what the caller may list.
	scopes map[fleetindex.FeedName]fleetindex.Scope
	basis  indexapi.Basis
}

// rightsOf is what the caller may list, as far as it is known.
func (s *search) rightsOf(cluster string, r feed.Resource) fleetindex.Scope {
	return s.scopes[fleetindex.FeedName{Cluster: cluster, Resource: r}]
}

// decide asks about all namespaces, and returns the feeds that the caller may list in some namespaces at most. Those of clusters that
// went before they decided are among them: they may have decided about namespaces.
func (s *search) decide(ctx context.Context, feeds []fleetindex.Searched) map[fleetindex.FeedName]bool {
	denied := map[fleetindex.FeedName]bool{}
	questions, isNamespaced := map[string][]feed.Question{}, map[fleetindex.FeedName]bool{}
	for _, f := range feeds {
		questions[f.Cluster] = append(questions[f.Cluster], feed.Question{Resource: f.Resource, Verb: verbList})
		isNamespaced[f.FeedName] = f.Definition.Namespaced
	}
	asked := map[string]*pending{}
	for name, about := range questions {
		asked[name] = s.rights.ask(ctx, s.caller, s.clusters[name], about, math.MaxInt)
	}
	partly, refused := map[string]int{}, map[string]bool{}
	for name, p := range asked {
		for i, v := range p.wait(ctx) {
			f := fleetindex.FeedName{Cluster: name, Resource: questions[name][i].Resource}
			switch {
			case v.isDecided && v.isAllowed:
				s.scopes[f] = fleetindex.Scope{All: true}
			case v.isDecided && isNamespaced[f]:
				denied[f] = true
				partly[name]++
			case v.isDecided:
				refused[name] = true
			default:
				s.basis.Undecided[name] = v.undecided()
				if v.isAway && isNamespaced[f] {
					denied[f] = true
				}
			}
		}
	}
	// A search for everything is not about what the caller may not see anyway.
	if s.namesKinds() {
		s.basis.Denied, s.basis.DeniedIn = len(refused), fewOf(refused)
	}
	if !s.findsAllNamed(partly) {
		s.basis.Partly, s.basis.PartlyIn = len(partly), fewOf(partly)
	}
	return denied
}

// fewOf returns the first clusters by name.
func fewOf[V any](clusters map[string]V) []string {
	names := slices.Sorted(maps.Keys(clusters))
	return names[:min(len(names), indexapi.MaxFew)]
}

// namesKinds reports whether the query says of which kinds objects are.
func (s *search) namesKinds() bool {
	return slices.ContainsFunc(s.query.Of(query.Kind), func(t query.Term) bool { return !t.Not })
}

// findsAllNamed reports whether the query names namespaces, and so few that there is a question for each in each of the
// feeds, which are counted by cluster. So it does not depend on rows whether something may be missing.
func (s *search) findsAllNamed(feeds map[string]int) bool {
	if s.named == 0 {
		return false
	}
	all := 0
	for _, n := range feeds {
		if n*s.named > feed.MaxQuestions {
			return false
		}
		all += n * s.named
	}
	return all <= maxNamedQuestions
}

// namedNamespaces returns how many namespaces a query is about; 0 if it does not say, or they are more than are asked about.
func namedNamespaces(q query.Query) int {
	for _, t := range q.Of(query.Namespace) {
		if !t.Not && len(t.Values) <= indexapi.MaxNamespaces && !slices.ContainsFunc(t.Values, query.Value.IsPattern) {
			return len(t.Values)
		}
	}
	return 0
}

// decideNamespaces asks about the namespaces that have rows which match, in feeds that the caller may not list in all. The
// questions depend on rows that the caller may not see, and the answer does not: it is asked first about namespaces that a
// cluster has let the caller list before, so that others never leave no question for them.
func (s *search) decideNamespaces(ctx context.Context, o fleetindex.SearchOptions, denied map[fleetindex.FeedName]bool) error {
	o.Rights = func(cluster string, r feed.Resource) fleetindex.Scope {
		return fleetindex.Scope{All: denied[fleetindex.FeedName{Cluster: cluster, Resource: r}]}
	}
	found, err := s.store.Namespaces(ctx, o, namespacesOfFeed)
	if err != nil {
		return err
	}
	candidates := map[string][]candidate{}
	for f, names := range found {
		for _, name := range names {
			q := feed.Question{Resource: f.Resource, Verb: verbList, Namespace: name}
			candidates[f.Cluster] = append(candidates[f.Cluster], candidate{q, s.rights.wasAllowed(s.caller, s.clusters[f.Cluster], q)})
		}
	}
	left := maxSearchQuestions
	if s.named > 0 {
		left = maxNamedQuestions
	}
	allowed, others := map[string][]feed.Question{}, map[string][]feed.Question{}
	for name, about := range candidates {
		allowed[name], others[name] = questionsOf(about)
	}
	names := slices.Sorted(maps.Keys(candidates))
	var asked []*pending
	for _, questions := range []map[string][]feed.Question{allowed, others} {
		for _, name := range names {
			if about := questions[name]; len(about) > 0 {
				p := s.rights.ask(ctx, s.caller, s.clusters[name], about, left)
				left -= p.asked
				asked = append(asked, p)
			}
		}
	}
	for _, p := range asked {
		for i, v := range p.wait(ctx) {
			if f := (fleetindex.FeedName{Cluster: p.cluster.Name, Resource: p.questions[i].Resource}); v.isDecided && v.isAllowed {
				s.scopes[f] = fleetindex.Scope{Namespaces: append(s.scopes[f].Namespaces, p.questions[i].Namespace)}
			}
		}
	}
	return nil
}

// candidate is what a cluster may be asked about a namespace.
type candidate struct {
	feed.Question
	// wasAllowed says that the cluster has allowed it before.
	wasAllowed bool
}

// questionsOf returns the questions about a cluster's namespaces that are asked: those that were allowed before, and the others.
func questionsOf(candidates []candidate) (allowed, others []feed.Question) {
	slices.SortFunc(candidates, func(a, b candidate) int {
		switch {
		case a.wasAllowed && !b.wasAllowed:
			return -1
		case !a.wasAllowed && b.wasAllowed:
			return 1
		}
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Resource.String(), b.Resource.String()))
	})
	namespaces := map[string]bool{}
	for _, c := range candidates[:min(len(candidates), feed.MaxQuestions)] {
		if !namespaces[c.Namespace] && len(namespaces) == indexapi.MaxNamespaces {
			continue
		}
		namespaces[c.Namespace] = true
		if c.wasAllowed {
			allowed = append(allowed, c.Question)
		} else {
			others = append(others, c.Question)
		}
	}
	return allowed, others
}
