package catalog

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxLegacyVersions is how many group versions a cluster without aggregated discovery may
// have: each is a request. Clusters have less than a hundred, and with hundreds of groups of
// CRDs some hundreds.
const maxLegacyVersions = 500

// ParseVersions reads an APIVersions, the answer of /api without aggregated discovery.
func ParseVersions(body []byte, b *Budget) ([]APIGroup, error) {
	var group APIGroup
	kind, n := "", 0
	d := open(body, b)
	err := d.read(func(key []byte) {
		if string(key) != "versions" {
			d.kind(key, &kind)
			return
		}
		d.array(func() {
			if d.count(&n, maxLegacyVersions, "versions of groups") {
				d.addVersion(&group, d.text())
			}
		})
	})
	if err == nil && kind != "APIVersions" {
		err = fmt.Errorf("kind is %q, want %q", kind, "APIVersions")
	}
	if err != nil {
		return nil, fmt.Errorf("reading versions of /api: %w", err)
	}
	return []APIGroup{group}, nil
}

// addVersion adds a version of which the resources are not known yet to a group, once.
func (d *document) addVersion(group *APIGroup, version string) {
	if isSegment(version) && !slices.ContainsFunc(group.Versions, func(v APIVersion) bool { return v.Version == version }) {
		group.Versions = keep(d, group.Versions, APIVersion{Version: version, Freshness: FreshnessStale})
	}
}

// ParseGroupList reads an APIGroupList, the answer of /apis without aggregated discovery.
func ParseGroupList(body []byte, b *Budget) ([]APIGroup, error) {
	var groups []APIGroup
	kind, n := "", 0
	places := map[string]int{}
	d := open(body, b)
	err := d.read(func(key []byte) {
		if string(key) != "groups" {
			d.kind(key, &kind)
			return
		}
		d.array(func() {
			if !d.count(&b.groups, maxGroups, "groups") {
				return
			}
			group := d.legacyGroup(&n)
			if _, ok := places[group.Metadata.Name]; !ok && isSegment(group.Metadata.Name) {
				places[group.Metadata.Name] = len(groups)
				groups = keep(d, groups, group)
			}
		})
	})
	if err == nil && kind != "APIGroupList" {
		err = fmt.Errorf("kind is %q, want %q", kind, "APIGroupList")
	}
	if err != nil {
		return nil, fmt.Errorf("reading groups of /apis: %w", err)
	}
	return groups, nil
}

// legacyGroup reads an APIGroup. n counts the versions of all groups.
func (d *document) legacyGroup(n *int) (group APIGroup) {
	preferred := ""
	version := func() (name string) {
		d.object(func(key []byte) {
			if string(key) == "version" {
				name = d.text()
			} else {
				d.skip()
			}
		})
		return name
	}
	d.object(func(key []byte) {
		switch string(key) {
		case "name":
			group.Metadata.Name = d.text()
		case "preferredVersion":
			preferred = version()
		case "versions":
			d.array(func() {
				if d.count(n, maxLegacyVersions, "versions of groups") {
					d.addVersion(&group, version())
				}
			})
		default:
			d.skip()
		}
	})
	slices.SortStableFunc(group.Versions, func(a, b APIVersion) int {
		return cmp.Compare(notPreferred(a, preferred), notPreferred(b, preferred))
	})
	return group
}

// notPreferred is 0 for the version that a group prefers, and 1 for others.
func notPreferred(v APIVersion, preferred string) int {
	if v.Version == preferred {
		return 0
	}
	return 1
}

// ParseResourceList reads an APIResourceList, the answer of /apis/<group>/<version>.
func ParseResourceList(body []byte, gv schema.GroupVersion, b *Budget) (APIVersion, error) {
	var all []APIResource
	kind := ""
	d := open(body, b)
	err := d.read(func(key []byte) {
		if string(key) != "resources" {
			d.kind(key, &kind)
			return
		}
		d.array(func() {
			if d.count(&b.resources, maxLegacyResources, "resources and subresources") {
				all = keep(d, all, d.legacyResource(gv))
			}
		})
	})
	if err == nil && kind != "APIResourceList" {
		err = fmt.Errorf("kind is %q, want %q", kind, "APIResourceList")
	}
	if err != nil {
		return APIVersion{}, fmt.Errorf("reading resources of %q: %w", gv, err)
	}
	v := APIVersion{Version: gv.Version, Freshness: FreshnessCurrent}
	index := map[string]int{}
	for _, r := range all {
		if _, ok := index[r.Resource]; !ok && isSegment(r.Resource) {
			index[r.Resource] = len(v.Resources)
			v.Resources = append(v.Resources, r)
		}
	}
	v.Resources = fit(v.Resources)
	for _, r := range all {
		name, sub := splitResource(r.Resource)
		if i, ok := index[name]; ok && isSegment(sub) && len(v.Resources[i].Subresources) < maxSubresources {
			v.Resources[i].Subresources = append(v.Resources[i].Subresources,
				APISubresource{Subresource: sub, ResponseKind: r.ResponseKind, Verbs: r.Verbs})
		}
	}
	return v, nil
}

// maxLegacyResources bounds the resources of a cluster together with their subresources.
const maxLegacyResources = 3 * maxResources

// legacyResource reads an APIResource of meta/v1. Its name may be a subresource's.
func (d *document) legacyResource(gv schema.GroupVersion) (r APIResource) {
	r.Scope = ScopeCluster
	var kind metav1.GroupVersionKind
	d.object(func(key []byte) {
		switch string(key) {
		case "name":
			r.Resource = d.text()
		case "singularName":
			r.SingularResource = d.word()
		case "namespaced":
			if value := d.skip(); string(value) == "true" {
				r.Scope = ScopeNamespaced
			}
		case "group":
			kind.Group = d.word()
		case "version":
			kind.Version = d.word()
		case "kind":
			kind.Kind = d.word()
		case "verbs":
			r.Verbs = d.words()
		case "shortNames":
			r.ShortNames = d.words()
		case "categories":
			r.Categories = d.words()
		default:
			d.skip()
		}
	})
	if kind.Kind == "" {
		return r
	}
	if kind.Version == "" { // the list's own are left out
		kind.Group, kind.Version = gv.Group, gv.Version
	}
	d.hold(48) // three strings
	r.ResponseKind = &kind
	return r
}

// LegacyVersions returns a group's versions as an APIVersions.
func LegacyVersions(group *APIGroup) metav1.APIVersions {
	versions := metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	if group != nil {
		for _, v := range group.Versions {
			versions.Versions = append(versions.Versions, v.Version)
		}
	}
	return versions
}

// LegacyGroup returns a group as an APIGroup of meta/v1.
func LegacyGroup(group APIGroup) metav1.APIGroup {
	legacy := metav1.APIGroup{Name: group.Metadata.Name, Versions: []metav1.GroupVersionForDiscovery{}}
	for _, v := range group.Versions {
		gv := schema.GroupVersion{Group: legacy.Name, Version: v.Version}
		legacy.Versions = append(legacy.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.Version})
	}
	if len(legacy.Versions) > 0 {
		legacy.PreferredVersion = legacy.Versions[0]
	}
	return legacy
}

// LegacyResources returns the resources of a version as an APIResourceList.
func LegacyResources(gv schema.GroupVersion, v APIVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	for _, r := range v.Resources {
		resource := metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Namespaced: r.Scope == ScopeNamespaced,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		setKind(&resource, r.ResponseKind, gv)
		list.APIResources = append(list.APIResources, resource)
		for _, s := range r.Subresources {
			sub := metav1.APIResource{Name: r.Resource + "/" + s.Subresource, Namespaced: resource.Namespaced, Verbs: s.Verbs}
			setKind(&sub, s.ResponseKind, gv)
			list.APIResources = append(list.APIResources, sub)
		}
	}
	return list
}

// setKind sets a resource's kind, and its group and version if they are not the list's.
func setKind(r *metav1.APIResource, kind *metav1.GroupVersionKind, list schema.GroupVersion) {
	if r.Verbs == nil {
		r.Verbs = metav1.Verbs{} // clients expect a list
	}
	if kind == nil {
		return
	}
	r.Kind = kind.Kind
	if kind.Group != list.Group || kind.Version != list.Version {
		r.Group, r.Version = kind.Group, kind.Version
	}
}
