package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func resource(name, scope string, verbs ...string) APIResource {
	return APIResource{Resource: name, Scope: scope, Verbs: verbs}
}

func group(name string, versions ...APIVersion) APIGroup {
	return APIGroup{Metadata: APIGroupMetadata{Name: name}, Versions: versions}
}

func apiVersion(name string, resources ...APIResource) APIVersion {
	return APIVersion{Version: name, Freshness: FreshnessCurrent, Resources: resources}
}

// shape writes groups in short: group/version: resources.
func shape(groups []APIGroup) []string {
	var lines []string
	for _, g := range groups {
		for _, v := range g.Versions {
			line := g.Metadata.Name + "/" + v.Version + ":"
			for _, r := range v.Resources {
				line += " " + r.Resource
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// encoded writes the groups of sources.
func encoded(t *testing.T, sources []Source) string {
	t.Helper()
	var all [][]APIGroup
	for _, source := range sources {
		all = append(all, source.Groups)
	}
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestUnion(t *testing.T) {
	newer := []APIGroup{
		group("", apiVersion("v1", resource("pods", ScopeNamespaced, "get"), resource("nodes", ScopeCluster))),
		group("flow", apiVersion("v1", resource("schemas", ScopeCluster)), apiVersion("v1beta3", resource("schemas", ScopeCluster))),
	}
	older := []APIGroup{
		group("zoo", apiVersion("v1", resource("cats", ScopeNamespaced))),
		group("", apiVersion("v1", resource("pods", ScopeNamespaced, "get", "list"), resource("zebras", ScopeCluster), resource("asses", ScopeCluster))),
		group("flow", apiVersion("v1beta2", resource("schemas", ScopeCluster)), apiVersion("v2", resource("schemas", ScopeCluster)),
			apiVersion("v1", resource("schemas", ScopeNamespaced))),
		group("ant", apiVersion("v1", resource("hills", ScopeNamespaced))),
	}
	noPods := func(group, resource string) bool { return group != "ant" && resource != "pods" }
	schemas := schema.GroupVersionResource{Group: "flow", Version: "v1", Resource: "schemas"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for _, test := range []struct {
		name      string
		sources   []Source
		want      []string
		conflicts []Conflict
		find      schema.GroupVersionResource
		wantFound []string
	}{
		{name: "none"},
		{
			name: "what most have comes first", sources: []Source{{Clusters: []string{"n"}, Groups: newer}, {Clusters: []string{"o", "b"}, Groups: older}},
			want: []string{"zoo/v1: cats", "/v1: pods zebras asses nodes", "flow/v1beta2: schemas", "flow/v2: schemas", "flow/v1: schemas", "flow/v1beta3: schemas",
				"ant/v1: hills"},
			conflicts: []Conflict{{schemas, []string{"n"}, "another scope"}},
			find:      pods, wantFound: []string{"b", "n", "o"},
		},
		{
			name: "of two the first by name", sources: []Source{{Clusters: []string{"o"}, Groups: older[2:3]}, {Clusters: []string{"n"}, Groups: newer}},
			want: []string{"flow/v1: schemas", "flow/v2: schemas", "flow/v1beta3: schemas", "flow/v1beta2: schemas", "/v1: pods nodes"},
			find: schemas, wantFound: []string{"n"},
			conflicts: []Conflict{{schemas, []string{"o"}, "another scope"}},
		},
		{
			name:    "filtered, but for one cluster",
			sources: []Source{{Clusters: []string{"o"}, Groups: older, Listed: noPods}, {Clusters: []string{"n"}, Groups: newer[:1]}},
			want: []string{"/v1: asses nodes pods zebras", "flow/v1beta2: schemas", "flow/v2: schemas",
				"flow/v1: schemas", "zoo/v1: cats"},
			find: pods, wantFound: []string{"n"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := encoded(t, test.sources)
			c := Union(test.sources)
			if diff := cmp.Diff(test.want, shape(c.Groups)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.conflicts, c.Conflicts); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
			found, ok := c.Find(test.find)
			if diff := cmp.Diff(test.wantFound, found.Clusters); diff != "" || ok != (test.wantFound != nil) {
				t.Errorf("Find(%v) = %v (-want +got):\n%s", test.find, ok, diff)
			}
			if missing, ok := c.Find(schema.GroupVersionResource{Resource: "none"}); ok {
				t.Errorf("found %v, want nothing", missing)
			}
			if after := encoded(t, test.sources); after != before {
				t.Errorf("sources were changed:\n got %s\nwant %s", after, before)
			}
		})
	}
}

func TestUnionVerbs(t *testing.T) {
	sub := func(verbs ...string) []APISubresource {
		return []APISubresource{{Subresource: "status", Verbs: verbs}}
	}
	a := APIResource{Resource: "pods", Scope: ScopeNamespaced, Verbs: []string{"get"}, Subresources: sub("get")}
	b := APIResource{Resource: "pods", Scope: ScopeNamespaced, Verbs: []string{"list", "get"},
		Subresources: append(sub("patch", "get"), APISubresource{Subresource: "resize"})}
	c := Union([]Source{{Clusters: []string{"a"}, Groups: []APIGroup{group("", apiVersion("v1", a))}}, {Clusters: []string{"b"}, Groups: []APIGroup{group("", apiVersion("v1", b))}}})
	want := APIResource{Resource: "pods", Scope: ScopeNamespaced, Verbs: []string{"get", "list"},
		Subresources: append(sub("get", "patch"), APISubresource{Subresource: "resize"})}
	if diff := cmp.Diff(want, c.Groups[0].Versions[0].Resources[0]); diff != "" {
		t.Errorf("resource (-want +got):\n%s", diff)
	}
}

func TestLegacyRoundTrip(t *testing.T) {
	gv := schema.GroupVersion{Group: "apps", Version: "v1"}
	kind := func(group, version, kind string) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	want := apiVersion("v1", APIResource{
		Resource: "deployments", ResponseKind: kind("apps", "v1", "Deployment"), Scope: ScopeNamespaced, SingularResource: "deployment",
		Verbs: []string{"get"}, ShortNames: []string{"deploy"}, Categories: []string{"all"},
		Subresources: []APISubresource{{Subresource: "scale", ResponseKind: kind("autoscaling", "v1", "Scale"), Verbs: []string{"get"}}},
	})
	body, err := json.Marshal(LegacyResources(gv, want))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseResourceList(body, gv, &Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("version (-want +got):\n%s", diff)
	}
}

func TestParseGroupList(t *testing.T) {
	got, err := ParseGroupList([]byte(`{"kind":"APIGroupList","groups":[{"name":"a","versions":[{"version":"v1"},{"version":"v2"},{"version":"v1"},{"version":"../x"}],
		"preferredVersion":{"version":"v2"}},{"name":"b/c"},{"name":"a","versions":[{"version":"v3"}]}]}`), &Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/v2:", "a/v1:"}, shape(got)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func FuzzUnion(f *testing.F) {
	body, err := AppendGroups(nil, []APIGroup{group("", apiVersion("v1", resource("pods", ScopeNamespaced, "get")))}, "v2")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(body), string(body))
	f.Add(string(body), strings.ReplaceAll(string(body), "Namespaced", "Cluster"))
	f.Add(`{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"version":"v1"},{"version":"v1"}]},{}]}`, "null")
	f.Fuzz(func(t *testing.T, a, b string) {
		var sources []Source
		for i, body := range []string{a, b} {
			groups, err := ParseGroups([]byte(body), &Budget{})
			if err == nil {
				sources = append(sources, Source{Clusters: []string{string(rune('a' + i))}, Groups: groups})
			}
		}
		c := Union(sources)
		for _, g := range c.Groups {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					gvr := schema.GroupVersionResource{Group: g.Metadata.Name, Version: v.Version, Resource: r.Resource}
					if found, ok := c.Find(gvr); !ok || found.Resource != r.Resource || len(found.Clusters) == 0 {
						t.Errorf("Find(%v) = %v, %v, want the resource and who serves it", gvr, found, ok)
					}
				}
			}
		}
		body, err := AppendGroups(nil, c.Groups, "v2")
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseGroups(body, &Budget{})
		if err != nil {
			t.Fatalf("reading what was written: %v", err)
		}
		if diff := cmp.Diff(shape(c.Groups), shape(again)); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	})
}

func FuzzLegacy(f *testing.F) {
	f.Add(`{"kind":"APIVersions","versions":["v1"]}`)
	f.Add(`{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"version":"v1"}]}]}`)
	f.Add(`{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true},{"name":"pods/log"},{"name":"pods/log"}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		gv := schema.GroupVersion{Version: "v1"}
		for _, parse := range []func([]byte, *Budget) ([]APIGroup, error){ParseVersions, ParseGroupList} {
			groups, err := parse([]byte(body), &Budget{})
			if err == nil {
				Union([]Source{{Groups: groups}})
			}
		}
		if v, err := ParseResourceList([]byte(body), gv, &Budget{}); err == nil {
			Union([]Source{{Groups: []APIGroup{group("", v)}}})
			LegacyResources(gv, v)
		}
	})
}
