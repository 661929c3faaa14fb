package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxGroupVersions is how many group versions of a cluster without aggregated discovery
// are read: each is a request. Clusters have less than a hundred.
const maxGroupVersions = 1000

// ParseVersions reads an APIVersions, the answer of /api without aggregated discovery.
func ParseVersions(body []byte) ([]APIGroup, error) {
	var versions metav1.APIVersions
	if err := json.Unmarshal(body, &versions); err != nil {
		return nil, fmt.Errorf("reading versions of /api: %w", err)
	}
	if versions.Kind != "APIVersions" {
		return nil, fmt.Errorf("reading versions of /api: kind is %q, want %q", versions.Kind, "APIVersions")
	}
	var group APIGroup
	for _, v := range versions.Versions {
		if isSegment(v) && len(group.Versions) < maxGroupVersions {
			group.Versions = append(group.Versions, APIVersion{Version: v, Freshness: FreshnessStale})
		}
	}
	return []APIGroup{group}, nil
}

// ParseGroupList reads an APIGroupList, the answer of /apis without aggregated discovery.
func ParseGroupList(body []byte) ([]APIGroup, error) {
	var list metav1.APIGroupList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading groups of /apis: %w", err)
	}
	if list.Kind != "APIGroupList" {
		return nil, fmt.Errorf("reading groups of /apis: kind is %q, want %q", list.Kind, "APIGroupList")
	}
	var groups []APIGroup
	total := 0
	for _, g := range list.Groups {
		if !isSegment(g.Name) {
			continue
		}
		group := APIGroup{Metadata: APIGroupMetadata{Name: g.Name}}
		for _, v := range g.Versions {
			if isSegment(v.Version) && total < maxGroupVersions {
				total++
				group.Versions = append(group.Versions, APIVersion{Version: v.Version, Freshness: FreshnessStale})
			}
		}
		slices.SortStableFunc(group.Versions, func(a, b APIVersion) int {
			return cmp.Compare(notPreferred(a, g), notPreferred(b, g))
		})
		groups = append(groups, group)
	}
	return groups, nil
}

// notPreferred is 0 for the version that a group prefers, and 1 for others.
func notPreferred(v APIVersion, g metav1.APIGroup) int {
	if v.Version == g.PreferredVersion.Version {
		return 0
	}
	return 1
}

// ParseResourceList reads an APIResourceList, the answer of /apis/<group>/<version>.
func ParseResourceList(body []byte, gv schema.GroupVersion) (APIVersion, error) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return APIVersion{}, fmt.Errorf("reading resources of %q: %w", gv, err)
	}
	if list.Kind != "APIResourceList" {
		return APIVersion{}, fmt.Errorf("reading resources of %q: kind is %q, want %q", gv, list.Kind, "APIResourceList")
	}
	v := APIVersion{Version: gv.Version, Freshness: FreshnessCurrent}
	index := map[string]int{}
	for _, r := range list.APIResources {
		if _, ok := index[r.Name]; ok || !isSegment(r.Name) {
			continue
		}
		index[r.Name] = len(v.Resources)
		resource := APIResource{
			Resource: r.Name, ResponseKind: kindOf(r, gv), Scope: ScopeCluster, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		if r.Namespaced {
			resource.Scope = ScopeNamespaced
		}
		v.Resources = append(v.Resources, resource)
	}
	for _, r := range list.APIResources {
		name, sub := splitResource(r.Name)
		if i, ok := index[name]; ok && isSegment(sub) {
			v.Resources[i].Subresources = append(v.Resources[i].Subresources,
				APISubresource{Subresource: sub, ResponseKind: kindOf(r, gv), Verbs: r.Verbs})
		}
	}
	return v, nil
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
