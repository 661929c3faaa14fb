package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The scopes of an APIResource.
const (
	ScopeCluster    = "Cluster"
	ScopeNamespaced = "Namespaced"
)

// The values of an APIVersion's Freshness.
const (
	FreshnessCurrent = "Current"
	FreshnessStale   = "Stale"
)

// APIGroup is one group of aggregated discovery (apidiscovery.k8s.io). Its JSON is the
// same in v2 and v2beta1. The types are here and not k8s.io/api's because this package
// imports k8s.io/apimachinery only.
type APIGroup struct {
	Metadata APIGroupMetadata `json:"metadata"`
	// Versions are in order of preference.
	Versions []APIVersion `json:"versions,omitempty"`
}

// APIGroupMetadata holds the group's name, which is empty for the core group.
type APIGroupMetadata struct {
	Name string `json:"name,omitempty"`
}

// APIVersion is one version of a group.
type APIVersion struct {
	Version   string        `json:"version"`
	Resources []APIResource `json:"resources,omitempty"`
	Freshness string        `json:"freshness,omitempty"`
}

// APIResource is one resource of a group version.
type APIResource struct {
	Resource         string                   `json:"resource"`
	ResponseKind     *metav1.GroupVersionKind `json:"responseKind,omitempty"`
	Scope            string                   `json:"scope"`
	SingularResource string                   `json:"singularResource"`
	Verbs            []string                 `json:"verbs"`
	ShortNames       []string                 `json:"shortNames,omitempty"`
	Categories       []string                 `json:"categories,omitempty"`
	Subresources     []APISubresource         `json:"subresources,omitempty"`
}

// APISubresource is one subresource of a resource.
type APISubresource struct {
	Subresource   string                    `json:"subresource"`
	ResponseKind  *metav1.GroupVersionKind  `json:"responseKind,omitempty"`
	AcceptedTypes []metav1.GroupVersionKind `json:"acceptedTypes,omitempty"`
	Verbs         []string                  `json:"verbs"`
}

const discoveryListKind = "APIGroupDiscoveryList"

// IsAggregated reports whether body is an answer of aggregated discovery. Servers that
// lack it answer the same request with an older kind.
func IsAggregated(body []byte) bool {
	var meta metav1.TypeMeta
	return json.Unmarshal(body, &meta) == nil && meta.Kind == discoveryListKind
}

// ParseGroups reads an answer of aggregated discovery, v2 or v2beta1. It leaves out what
// cannot be part of a URL.
func ParseGroups(body []byte) ([]APIGroup, error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           []APIGroup `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading aggregated discovery: %w", err)
	}
	if list.Kind != discoveryListKind {
		return nil, fmt.Errorf("reading aggregated discovery: kind is %q, want %q", list.Kind, discoveryListKind)
	}
	list.Items = slices.DeleteFunc(list.Items, func(g APIGroup) bool {
		return g.Metadata.Name != "" && !isSegment(g.Metadata.Name)
	})
	for i := range list.Items {
		versions := slices.DeleteFunc(list.Items[i].Versions, func(v APIVersion) bool { return !isSegment(v.Version) })
		for j := range versions {
			versions[j].Resources = slices.DeleteFunc(versions[j].Resources, func(r APIResource) bool {
				return !isSegment(r.Resource) || r.Scope != ScopeCluster && r.Scope != ScopeNamespaced
			})
		}
		list.Items[i].Versions = versions
	}
	return list.Items, nil
}

// isSegment reports whether s can be one segment of a URL's path as Kubernetes uses it.
func isSegment(s string) bool {
	if s == "" || len(s) > 253 || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// AppendGroups appends the answer of aggregated discovery in a version, "v2" or
// "v2beta1".
func AppendGroups(dst []byte, groups []APIGroup, version string) ([]byte, error) {
	if groups == nil {
		groups = []APIGroup{} // clients expect a list
	}
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{}   `json:"metadata"`
		Items           []APIGroup `json:"items"`
	}{
		TypeMeta: metav1.TypeMeta{Kind: discoveryListKind, APIVersion: "apidiscovery.k8s.io/" + version},
		Items:    groups,
	}
	body, err := json.Marshal(list)
	if err != nil {
		return dst, fmt.Errorf("encoding aggregated discovery: %w", err)
	}
	return append(dst, body...), nil
}

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
	// Groups are in the order of the newest cluster, then by name.
	Groups []APIGroup
	// Conflicts are the resources that some clusters know with another scope.
	Conflicts []Conflict

	sources []Source
	places  map[schema.GroupVersionResource]*place
}

// Conflict is a resource that the named clusters know with another scope than the newest
// cluster. It is left out for them.
type Conflict struct {
	Resource schema.GroupVersionResource
	Clusters []string
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

// compareResources sorts resources by name.
func compareResources(a, b APIResource) int { return cmp.Compare(a.Resource, b.Resource) }

// splitResource returns the parts of a name of an APIResourceList, as in "pods/log".
func splitResource(name string) (resource, subresource string) {
	resource, subresource, _ = strings.Cut(name, "/")
	return resource, subresource
}
