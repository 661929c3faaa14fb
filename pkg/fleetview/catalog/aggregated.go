package catalog

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
