package merge

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
)

// CompareVersions compares versions of Kubernetes as in v1.36.0-eks-1. What is no version
// is older than what is one.
func CompareVersions(a, b string) int {
	parsedA, errA := utilversion.ParseSemantic(a)
	parsedB, errB := utilversion.ParseSemantic(b)
	switch {
	case errA != nil && errB != nil:
		return 0
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	case parsedA.LessThan(parsedB):
		return -1
	case parsedB.LessThan(parsedA):
		return 1
	}
	return 0
}

// Union merges what clusters serve. The sources are sorted: the newest cluster first. Its
// order of groups, versions and resources comes first; what it lacks follows, sorted. A
// source's Groups are not changed, and parts of them are in the result.
func Union(sources []Source) *Catalog {
	c := &Catalog{sources: sources, places: map[schema.GroupVersionResource]*place{}}
	u := union{groups: map[string]*unionGroup{}}
	for i, source := range sources {
		for _, group := range source.listed() {
			u.add(i, group)
		}
	}
	for _, name := range u.order() {
		group := u.groups[name]
		merged := APIGroup{Metadata: APIGroupMetadata{Name: name}}
		for _, v := range group.sorted() {
			c.add(len(c.Groups), len(merged.Versions), name, v)
			merged.Versions = append(merged.Versions, v.APIVersion)
		}
		c.Groups = append(c.Groups, merged)
		c.Conflicts = append(c.Conflicts, group.conflicts(name, sources)...)
	}
	return c
}

// add notes the places of a version's resources, and sorts the ones that the newest
// source lacks.
func (c *Catalog) add(group, index int, name string, v *unionVersion) {
	slices.SortStableFunc(v.Resources[v.first:], compareResources)
	for i, resource := range v.Resources {
		gvr := schema.GroupVersionResource{Group: name, Version: v.Version, Resource: resource.Resource}
		c.places[gvr] = &place{group: group, version: index, resource: i, sources: v.sources[resource.Resource]}
	}
}

// union collects groups of many sources.
type union struct {
	groups map[string]*unionGroup
	// names are the groups' in the order of their first source.
	names []string
}

type unionGroup struct {
	source   int // the first that has the group
	versions []*unionVersion
}

type unionVersion struct {
	APIVersion
	source    int
	first     int              // how many of the resources are the first source's
	sources   map[string][]int // by resource: which sources have it
	conflicts map[string][]int // by resource: which have it with another scope
}

// order returns the names of the groups: the first source's as they are, then the others
// by name.
func (u *union) order() []string {
	slices.SortStableFunc(u.names, func(a, b string) int {
		fromA, fromB := min(u.groups[a].source, 1), min(u.groups[b].source, 1)
		if fromA == 1 && fromB == 1 {
			return cmp.Compare(a, b)
		}
		return cmp.Compare(fromA, fromB)
	})
	return u.names
}

// sorted returns the versions: those of the first source that has the group as they are,
// then the others, stable and new ones first.
func (g *unionGroup) sorted() []*unionVersion {
	slices.SortStableFunc(g.versions, func(a, b *unionVersion) int {
		laterA, laterB := a.source != g.source, b.source != g.source
		switch {
		case laterA && laterB:
			return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
		case laterA:
			return 1
		case laterB:
			return -1
		}
		return 0
	})
	return g.versions
}

func (g *unionGroup) conflicts(name string, sources []Source) []Conflict {
	var conflicts []Conflict
	for _, v := range g.versions {
		for resource, from := range v.conflicts {
			conflict := Conflict{Resource: schema.GroupVersionResource{Group: name, Version: v.Version, Resource: resource}}
			for _, i := range from {
				conflict.Clusters = append(conflict.Clusters, sources[i].Clusters...)
			}
			slices.Sort(conflict.Clusters)
			conflicts = append(conflicts, conflict)
		}
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int { return cmp.Compare(a.Resource.String(), b.Resource.String()) })
	return conflicts
}

func (u *union) add(source int, group APIGroup) {
	known := u.groups[group.Metadata.Name]
	if known == nil {
		known = &unionGroup{source: source}
		u.groups[group.Metadata.Name] = known
		u.names = append(u.names, group.Metadata.Name)
	}
	for _, v := range group.Versions {
		known.add(source, v)
	}
}

func (g *unionGroup) add(source int, v APIVersion) {
	i := slices.IndexFunc(g.versions, func(known *unionVersion) bool { return known.Version == v.Version })
	if i < 0 {
		g.versions = append(g.versions, &unionVersion{
			APIVersion: APIVersion{Version: v.Version, Freshness: v.Freshness},
			source:     source, sources: map[string][]int{}, conflicts: map[string][]int{},
		})
		i = len(g.versions) - 1
	}
	known := g.versions[i]
	if v.Freshness == FreshnessCurrent {
		known.Freshness = FreshnessCurrent
	}
	for _, resource := range v.Resources {
		known.add(source, resource)
	}
	if source == known.source {
		known.first = len(known.Resources)
	}
}

func (v *unionVersion) add(source int, r APIResource) {
	from, ok := v.sources[r.Resource]
	if !ok {
		v.Resources = append(v.Resources, r)
		v.sources[r.Resource] = []int{source}
		return
	}
	if from[len(from)-1] == source {
		return // the source lists it twice
	}
	i := slices.IndexFunc(v.Resources, func(known APIResource) bool { return known.Resource == r.Resource })
	known := &v.Resources[i]
	if known.Scope != r.Scope {
		if c := v.conflicts[r.Resource]; len(c) == 0 || c[len(c)-1] != source {
			v.conflicts[r.Resource] = append(c, source)
		}
		return
	}
	v.sources[r.Resource] = append(from, source)
	known.Verbs = unionOf(known.Verbs, r.Verbs)
	known.Subresources = unionOfSubresources(known.Subresources, r.Subresources)
	if known.ResponseKind == nil || known.ResponseKind.Kind == "" {
		known.ResponseKind = r.ResponseKind
	}
}

// unionOf returns a with what it lacks of b. It does not change a.
func unionOf(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(slices.Clip(a), s)
		}
	}
	return a
}

func unionOfSubresources(a, b []APISubresource) []APISubresource {
	for _, s := range b {
		i := slices.IndexFunc(a, func(known APISubresource) bool { return known.Subresource == s.Subresource })
		if i < 0 {
			a = append(slices.Clip(a), s)
			continue
		}
		if verbs := unionOf(a[i].Verbs, s.Verbs); len(verbs) > len(a[i].Verbs) {
			a = slices.Clone(a)
			a[i].Verbs = verbs
		}
	}
	return a
}

// kindOf returns a kind without the group and version that an APIResourceList leaves out.
func kindOf(r metav1.APIResource, gv schema.GroupVersion) *metav1.GroupVersionKind {
	if r.Kind == "" {
		return nil
	}
	kind := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if r.Version == "" {
		kind.Group, kind.Version = gv.Group, gv.Version
	}
	return kind
}
