package catalog

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// versions merges the versions of a group. There is one without a name if the group has none.
func (c *Catalog) versions(group *entry[APIGroup]) []*unionVersion {
	versions := newRoll[APIVersion](func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) })
	versions.total = group.clusters
	for i, value := range group.values {
		for at, v := range value.Versions {
			versions.add(v.Version, v, said{group.by[i].source, at, group.by[i].clusters})
		}
	}
	var all []*unionVersion
	for _, v := range versions.sorted() {
		merged := &unionVersion{GroupVersion: schema.GroupVersion{Group: group.name, Version: v.name}}
		resources := newRoll[APIResource](cmp.Compare[string])
		resources.total = v.clusters
		for i, value := range v.values {
			if merged.freshness == "" || value.Freshness == FreshnessCurrent {
				merged.freshness = value.Freshness
			}
			for at, r := range value.Resources {
				resources.add(r.Resource, r, said{v.by[i].source, at, v.by[i].clusters})
			}
		}
		for _, r := range resources.sorted() {
			merged.resources = append(merged.resources, c.elect(merged.GroupVersion, r))
		}
		all = append(all, merged)
	}
	if len(all) == 0 {
		all = append(all, &unionVersion{GroupVersion: schema.GroupVersion{Group: group.name}})
	}
	return all
}

// add adds a group, and notes the places of its resources.
func (c *Catalog) add(versions []*unionVersion) {
	group := APIGroup{Metadata: APIGroupMetadata{Name: versions[0].Group}}
	for _, v := range versions {
		if v.Version == "" {
			continue
		}
		merged := APIVersion{Version: v.Version, Freshness: v.freshness}
		for _, e := range v.resources {
			if !e.out {
				c.places[v.WithResource(e.Resource)] = &place{
					group: len(c.Groups), version: len(group.Versions), resource: len(merged.Resources), sources: e.sources,
				}
				merged.Resources = append(merged.Resources, e.APIResource)
			}
		}
		group.Versions = append(group.Versions, merged)
	}
	c.Groups = append(c.Groups, group)
}

// elect makes one resource of what clusters say of it. Those that say another scope or kind
// are in conflict.
func (c *Catalog) elect(gv schema.GroupVersion, of *entry[APIResource]) *elected {
	of = c.agree(gv, of, "another scope", func(r APIResource) string { return r.Scope }, never)
	of = c.agree(gv, of, "another kind", kindOfResource, func(kind string) bool { return isUsual(of.name, kind) })
	e := &elected{APIResource: APIResource{Resource: of.name, Scope: of.values[0].Scope}, clusters: of.clusters}
	kind := kindOfResource(of.values[0])
	for i, r := range of.values {
		kind = cmp.Or(kind, kindOfResource(r))
		e.sources = append(e.sources, of.by[i].source)
		e.Verbs = unionOf(e.Verbs, r.Verbs)
		e.first = firstOf(e.first, of.by[i].clusters)
	}
	e.usual = isUsual(of.name, kind)
	e.ResponseKind = mostKind(of, func(r APIResource) *metav1.GroupVersionKind { return r.ResponseKind })
	e.SingularResource = most(of, func(r APIResource) string { return r.SingularResource }, func(s string) bool { return s == singularOf(kind) })
	e.ShortNames = mostWords(of, func(r APIResource) []string { return r.ShortNames })
	e.Categories = mostWords(of, func(r APIResource) []string { return r.Categories })
	e.Subresources = mostSubresources(of)
	return e
}

// agree returns the entry of those clusters that say what most say. An empty entry counts as none.
func (c *Catalog) agree(gv schema.GroupVersion, of *entry[APIResource], has string, says func(APIResource) string, usual func(string) bool) *entry[APIResource] {
	what := most(of, says, usual)
	agreed := &entry[APIResource]{name: of.name}
	var others []string
	for i, r := range of.values {
		if word := says(r); word == what || word == "" {
			agreed.values, agreed.by = append(agreed.values, r), append(agreed.by, of.by[i])
			agreed.clusters += len(of.by[i].clusters)
		} else {
			others = append(others, of.by[i].clusters...)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		c.Conflicts = append(c.Conflicts, Conflict{Resource: gv.WithResource(of.name), Clusters: others, Has: has})
	}
	return agreed
}

// Union merges what clusters serve. The majority decides what concerns all of them: the
// order of groups, versions and resources, and of each resource its scope, kind and names. A
// resource that one cluster has is served, behind those that most have, unless it takes a
// kind or a name from another one. A source's Groups are not changed, and parts of them are
// in the result.
func Union(sources []Source) *Catalog {
	c := &Catalog{sources: sources, places: map[schema.GroupVersionResource]*place{}}
	groups := newRoll[APIGroup](cmp.Compare[string])
	for i, source := range sources {
		groups.total += len(source.Clusters)
		for at, group := range source.listed() {
			groups.add(group.Metadata.Name, group, said{i, at, source.Clusters})
		}
	}
	var all [][]*unionVersion
	for _, group := range groups.sorted() {
		all = append(all, c.versions(group))
	}
	c.clearNames(all)
	for _, versions := range all {
		c.add(versions)
	}
	slices.SortFunc(c.Conflicts, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Has, b.Has))
	})
	return c
}
