package catalog

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Source is what some clusters serve, all of them the same.
type Source struct {
	Clusters []string
	Groups   []APIGroup
	// Listed reports whether the view has a resource of these clusters; nil means that it
	// has all of them.
	Listed func(group, resource string) bool
}

// Catalog is what the clusters of a view serve together.
type Catalog struct {
	// Groups are in the order in which most clusters have them.
	Groups []APIGroup
	// Conflicts are the resources of which some clusters say something else than most.
	Conflicts []Conflict

	sources []Source
	places  map[schema.GroupVersionResource]*place
}

// Conflict is a resource of which the named clusters say something else than most. It is
// left out for them.
type Conflict struct {
	Resource schema.GroupVersionResource
	Clusters []string
	// Has is what it has in those clusters, such as "another scope".
	Has string
}

// place says where a resource is in Groups, and which sources have it.
type place struct {
	group, version, resource int
	sources                  []int
}

// Served is one resource of a Catalog.
type Served struct {
	APIResource
	// Clusters serve the resource. They are sorted by name.
	Clusters []string
}

// Find returns a resource and who serves it.
func (c *Catalog) Find(r schema.GroupVersionResource) (Served, bool) {
	at := c.places[r]
	if at == nil {
		return Served{}, false
	}
	served := Served{APIResource: c.Groups[at.group].Versions[at.version].Resources[at.resource]}
	for _, i := range at.sources {
		served.Clusters = append(served.Clusters, c.sources[i].Clusters...)
	}
	slices.Sort(served.Clusters)
	return served, true
}

// Group returns the group of that name, or nil.
func (c *Catalog) Group(name string) *APIGroup {
	for i := range c.Groups {
		if c.Groups[i].Metadata.Name == name {
			return &c.Groups[i]
		}
	}
	return nil
}

// Version returns the group version, or nil.
func (c *Catalog) Version(gv schema.GroupVersion) *APIVersion {
	group := c.Group(gv.Group)
	if group == nil {
		return nil
	}
	for i := range group.Versions {
		if group.Versions[i].Version == gv.Version {
			return &group.Versions[i]
		}
	}
	return nil
}

// listed returns the source's groups without what the view does not have.
func (s Source) listed() []APIGroup {
	if s.Listed == nil {
		return s.Groups
	}
	var groups []APIGroup
	for _, group := range s.Groups {
		listed := APIGroup{Metadata: group.Metadata}
		for _, version := range group.Versions {
			resources := slices.DeleteFunc(slices.Clone(version.Resources), func(r APIResource) bool {
				return !s.Listed(group.Metadata.Name, r.Resource)
			})
			if len(resources) > 0 {
				version.Resources = resources
				listed.Versions = append(listed.Versions, version)
			}
		}
		if len(listed.Versions) > 0 {
			groups = append(groups, listed)
		}
	}
	return groups
}

// splitResource returns the parts of a name of an APIResourceList, as in "pods/log".
func splitResource(name string) (resource, subresource string) {
	resource, subresource, _ = strings.Cut(name, "/")
	return resource, subresource
}

// unionVersion is a version of a group with the resources of all clusters.
type unionVersion struct {
	schema.GroupVersion
	freshness string
	resources []*elected
}

// elected is a resource as most clusters have it.
type elected struct {
	APIResource
	// sources have it so, and clusters counts theirs.
	sources  []int
	clusters int
	// usual says that the resource is called as the kind lets expect, and first is the
	// cluster that has it and is first by name.
	usual bool
	first string
	// out says that it is left out, because it takes the kind or a name of another one.
	out bool
}
