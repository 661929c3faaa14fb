package merge

import (
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
	kind := ""
	d := open(body, &Budget{})
	err := d.read(func(key []byte) { d.kind(key, &kind) })
	return err == nil && kind == discoveryListKind
}

// kind reads the document's kind, and skips all else.
func (d *document) kind(key []byte, kind *string) {
	if string(key) == "kind" {
		*kind = d.text()
	} else {
		d.skip()
	}
}

// ParseGroups reads an answer of aggregated discovery, v2 or v2beta1. It leaves out what
// cannot be part of a URL.
func ParseGroups(body []byte, b *Budget) ([]APIGroup, error) {
	var groups []APIGroup
	kind := ""
	d := open(body, b)
	err := d.read(func(key []byte) {
		if string(key) != "items" {
			d.kind(key, &kind)
			return
		}
		d.array(func() {
			if d.count(&b.groups, maxGroups, "groups") {
				if group := d.group(); group.Metadata.Name == "" || isSegment(group.Metadata.Name) {
					groups = keep(d, groups, group)
				}
			}
		})
	})
	if err == nil && kind != discoveryListKind {
		err = fmt.Errorf("kind is %q, want %q", kind, discoveryListKind)
	}
	if err != nil {
		return nil, fmt.Errorf("reading aggregated discovery: %w", err)
	}
	return fit(groups), nil
}

func (d *document) group() (group APIGroup) {
	d.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.object(func(key []byte) {
				if string(key) == "name" {
					group.Metadata.Name = d.text()
				} else {
					d.skip()
				}
			})
		case "versions":
			d.array(func() {
				if d.count(&d.budget.versions, maxVersions, "versions of groups") {
					if v := d.version(); isSegment(v.Version) {
						group.Versions = keep(d, group.Versions, v)
					}
				}
			})
		default:
			d.skip()
		}
	})
	group.Versions = fit(group.Versions)
	return group
}

func (d *document) version() (v APIVersion) {
	d.object(func(key []byte) {
		switch string(key) {
		case "version":
			v.Version = d.text()
		case "freshness":
			if v.Freshness = d.text(); v.Freshness != FreshnessCurrent {
				v.Freshness = FreshnessStale
			}
		case "resources":
			d.array(func() {
				if d.count(&d.budget.resources, maxResources, "resources") {
					if r := d.resource(); isSegment(r.Resource) && (r.Scope == ScopeCluster || r.Scope == ScopeNamespaced) {
						v.Resources = keep(d, v.Resources, r)
					}
				}
			})
		default:
			d.skip()
		}
	})
	v.Resources = fit(v.Resources)
	return v
}

func (d *document) resource() (r APIResource) {
	n := 0
	d.object(func(key []byte) {
		switch string(key) {
		case "resource":
			r.Resource = d.text()
		case "responseKind":
			r.ResponseKind = d.groupVersionKind()
		case "scope":
			r.Scope = d.text()
		case "singularResource":
			r.SingularResource = d.word()
		case "verbs":
			r.Verbs = d.words()
		case "shortNames":
			r.ShortNames = d.words()
		case "categories":
			r.Categories = d.words()
		case "subresources":
			d.array(func() {
				if d.count(&n, maxSubresources, "subresources of one resource") {
					if s := d.subresource(); isSegment(s.Subresource) {
						r.Subresources = keep(d, r.Subresources, s)
					}
				}
			})
		default:
			d.skip()
		}
	})
	r.Subresources = fit(r.Subresources)
	return r
}

func (d *document) subresource() (s APISubresource) {
	n := 0
	d.object(func(key []byte) {
		switch string(key) {
		case "subresource":
			s.Subresource = d.text()
		case "responseKind":
			s.ResponseKind = d.groupVersionKind()
		case "acceptedTypes":
			d.array(func() {
				if d.count(&n, maxWords, "accepted types of one subresource") {
					if kind := d.groupVersionKind(); kind != nil {
						s.AcceptedTypes = keep(d, s.AcceptedTypes, *kind)
					}
				}
			})
		case "verbs":
			s.Verbs = d.words()
		default:
			d.skip()
		}
	})
	s.AcceptedTypes = fit(s.AcceptedTypes)
	return s
}

// groupVersionKind reads a kind; nil if it has no name that a kind can have.
func (d *document) groupVersionKind() *metav1.GroupVersionKind {
	var kind metav1.GroupVersionKind
	d.object(func(key []byte) {
		switch string(key) {
		case "group":
			kind.Group = d.word()
		case "version":
			kind.Version = d.word()
		case "kind":
			kind.Kind = d.word()
		default:
			d.skip()
		}
	})
	if kind.Kind == "" {
		return nil
	}
	d.hold(48) // three strings
	return &kind
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
