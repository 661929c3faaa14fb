package catalog

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// clearNames sees to it that a name leads clients to what most clusters mean by it. Clients
// go from short names to resources, from resources to kinds, and from kinds to resources, and
// ask for no group where users give none.
func (c *Catalog) clearNames(groups [][]*unionVersion) {
	for _, versions := range groups {
		for _, v := range versions {
			c.clearKinds(v)
		}
	}
	c.clearEarlier(groups)
	clearShortNames(groups)
}

// clearKinds leaves out of a version what takes a kind or a name from another resource. Of
// two, clients believe the last one. The resource that most clusters have keeps its kind and
// names, and others have them only if most of those clusters have these resources as well.
func (c *Catalog) clearKinds(v *unionVersion) {
	ranked := slices.Clone(v.resources)
	slices.SortStableFunc(ranked, func(a, b *elected) int {
		if a.clusters == b.clusters && a.usual != b.usual {
			if a.usual {
				return -1
			}
			return 1
		}
		return cmp.Or(-cmp.Compare(a.clusters, b.clusters), cmp.Compare(a.first, b.first))
	})
	owners := map[string]*elected{}
	for _, e := range ranked {
		names := e.names()
		if kind := kindOfResource(e.APIResource); kind != "" {
			names = append(names, "kind "+singularOf(kind))
		}
		for _, name := range names {
			if owner := owners[name]; owner != nil && !e.out && 2*c.together(owner, e) <= owner.clusters {
				c.leaveOut(v.GroupVersion, e, owner.Resource)
			}
		}
		for _, name := range names {
			if !e.out && owners[name] == nil {
				owners[name] = e
			}
		}
	}
}

// clearEarlier leaves out what comes before a resource of another group that has the same
// name in more clusters: clients that are not told a group take the first one.
func (c *Catalog) clearEarlier(groups [][]*unionVersion) {
	later := map[string]int{} // by name: how many clusters have it at most
	for _, versions := range slices.Backward(groups) {
		for _, v := range versions {
			for _, e := range v.resources {
				for _, name := range e.names() {
					if !e.out && later[name] > e.clusters {
						c.leaveOut(v.GroupVersion, e, name+" of another group")
					}
				}
			}
		}
		for _, v := range versions {
			for _, e := range v.resources {
				for _, name := range e.names() {
					if !e.out {
						later[name] = max(later[name], e.clusters)
					}
				}
			}
		}
	}
}

func (c *Catalog) leaveOut(gv schema.GroupVersion, e *elected, owner string) {
	e.out = true
	conflict := Conflict{Resource: gv.WithResource(e.Resource), Has: "the kind or a name of " + owner}
	for _, i := range e.sources {
		conflict.Clusters = append(conflict.Clusters, c.sources[i].Clusters...)
	}
	slices.Sort(conflict.Clusters)
	c.Conflicts = append(c.Conflicts, conflict)
}

// together counts the clusters that have both resources.
func (c *Catalog) together(a, b *elected) int {
	n := 0
	for _, i := range a.sources {
		if slices.Contains(b.sources, i) {
			n += len(c.sources[i].Clusters)
		}
	}
	return n
}

// known is a name's resource, and how many clusters have it.
type known struct {
	group, resource string
	clusters        int
}

// clearShortNames takes away short names that are names of another resource of more clusters.
func clearShortNames(groups [][]*unionVersion) {
	// The two resources of a name that most clusters have: one may be the asking one.
	names := map[string][2]known{}
	add := func(name string, k known) {
		two := names[name]
		switch {
		case two[0].group == k.group && two[0].resource == k.resource:
			two[0].clusters = max(two[0].clusters, k.clusters)
		case k.clusters > two[0].clusters:
			two = [2]known{k, two[0]}
		case k.clusters > two[1].clusters:
			two[1] = k
		}
		names[name] = two
	}
	each := func(visit func(known, *elected)) {
		for _, versions := range groups {
			for _, v := range versions {
				for _, e := range v.resources {
					if !e.out {
						visit(known{v.Group, e.Resource, e.clusters}, e)
					}
				}
			}
		}
	}
	each(func(k known, e *elected) {
		for _, name := range append(e.names(), e.ShortNames...) {
			add(name, k)
		}
	})
	each(func(k known, e *elected) {
		e.ShortNames = slices.DeleteFunc(slices.Clone(e.ShortNames), func(name string) bool {
			two := names[name]
			return slices.ContainsFunc(two[:], func(other known) bool {
				return (other.group != k.group || other.resource != k.resource) && other.clusters > k.clusters
			})
		})
	})
}

// names are what clients know a resource by: its own and its singular's.
func (e *elected) names() []string {
	return []string{e.Resource, cmp.Or(e.SingularResource, singularOf(kindOfResource(e.APIResource)), e.Resource)}
}
