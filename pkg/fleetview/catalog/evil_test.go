package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// named makes a resource with a kind and the names that clients find it by.
func named(name, kind, singular string, shortNames ...string) APIResource {
	return APIResource{
		Resource: name, Scope: ScopeNamespaced, SingularResource: singular, ShortNames: shortNames,
		ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: kind},
	}
}

// described writes the resources of groups in short: group/version resource kind singular names.
func described(groups []APIGroup) (lines []string) {
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				lines = append(lines, strings.Join(append([]string{g.Metadata.Name + "/" + v.Version, r.Resource, kindOfResource(r), r.SingularResource}, r.ShortNames...), " "))
			}
		}
	}
	return lines
}

// TestNoMemberSpeaksForOthers has honest clusters and one that claims what leads clients of
// all of them to it. The claims that are left lead nobody there.
func TestNoMemberSpeaksForOthers(t *testing.T) {
	secrets, pods := named("secrets", "Secret", "secret"), named("pods", "Pod", "pod", "po")
	core := []APIGroup{group("", apiVersion("v1", pods, secrets)), group("apps", apiVersion("v1", named("deployments", "Deployment", "deployment", "deploy")))}
	want := []string{"/v1 pods Pod pod po", "/v1 secrets Secret secret", "apps/v1 deployments Deployment deployment deploy"}
	clusterPods := pods
	clusterPods.Scope = ScopeCluster
	with := func(more ...APIResource) []APIGroup {
		return append([]APIGroup{group("", apiVersion("v1", append([]APIResource{pods, secrets}, more...)...))}, core[1])
	}
	for name, test := range map[string]struct {
		evil []APIGroup
		more []string
		has  string // what the first conflict says
	}{
		"a kind":                          {evil: with(named("secretz", "Secret", "secret")), has: "the kind or a name of secrets"},
		"a kind, without the resource":    {evil: []APIGroup{group("", apiVersion("v1", named("secretz", "Secret", "")))}, has: "the kind or a name of secrets"},
		"a kind in another case":          {evil: with(named("secretz", "SECRET", "secretz")), has: "the kind or a name of secrets"},
		"a singular":                      {evil: with(named("secretz", "Secretz", "secret")), has: "the kind or a name of secrets"},
		"a singular that is guessed":      {evil: with(APIResource{Resource: "secret", Scope: ScopeNamespaced}), has: "the kind or a name of secrets"},
		"a short name":                    {evil: with(named("secretz", "Secretz", "", "secret", "po", "sz")), more: []string{"/v1 secretz Secretz  sz"}},
		"a short name of another":         {evil: []APIGroup{group("", apiVersion("v1", named("pods", "Pod", "pod", "po", "secret"), secrets)), core[1]}},
		"another kind":                    {evil: []APIGroup{group("", apiVersion("v1", named("secrets", "Config", "secret"), pods)), core[1]}, has: "another kind"},
		"another singular":                {evil: []APIGroup{group("", apiVersion("v1", named("pods", "Pod", "secret"), secrets)), core[1]}},
		"another scope":                   {evil: []APIGroup{group("", apiVersion("v1", clusterPods, secrets)), core[1]}, has: "another scope"},
		"a version that would come first": {evil: append(slices.Clone(core[:1]), group("apps", apiVersion("v99", named("deployments", "Deployment", "deployment")), core[1].Versions[0])), more: []string{"apps/v99 deployments Deployment deployment"}},
		"a group that would come first":   {evil: append([]APIGroup{group("0", apiVersion("v1", named("secrets", "Secret", "secret")))}, core...), more: []string{"0/v1 secrets Secret secret"}},
		"another order":                   {evil: []APIGroup{core[1], core[0]}},
		"a resource of a later group":     {evil: with(named("deployments", "Deploymentz", "deployment")), has: "the kind or a name of deployments of another group"},
	} {
		// The evil cluster is first by name, and says that it is what it likes.
		c := Union([]Source{{Clusters: []string{"0-evil"}, Groups: test.evil}, {Clusters: []string{"a", "b"}, Groups: core}})
		got := described(c.Groups)
		lone := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return slices.Contains(want, line) })
		for i, line := range got {
			if slices.Contains(test.more, line) && i < 2 {
				t.Errorf("%s: %q comes before what most have: %q", name, line, got)
			}
		}
		honest := slices.DeleteFunc(got, func(line string) bool { return slices.Contains(lone, line) })
		if diff := cmp.Diff(want, honest); diff != "" {
			t.Errorf("%s: resources of most (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.more, lone); diff != "" && len(test.more)+len(lone) > 0 {
			t.Errorf("%s: more resources (-want +got):\n%s", name, diff)
		}
		if has := fmt.Sprint(c.Conflicts); (test.has == "") != (len(c.Conflicts) == 0) || !strings.Contains(has, test.has) || test.has != "" && !strings.Contains(has, "0-evil") {
			t.Errorf("%s: conflicts are %v, want one of 0-evil that it has %q", name, has, test.has)
		}
	}
}

// TestUnionOfHonestMembers has what clusters of one fleet differ in: nothing is left out.
func TestUnionOfHonestMembers(t *testing.T) {
	// OpenShift has two resources of a kind in one version, metrics has pods of its own, and
	// new clusters have versions that old ones lack.
	openshift := group("template.openshift.io", apiVersion("v1", named("processedtemplates", "Template", "processedtemplate"), named("templates", "Template", "template")))
	metrics := group("metrics.k8s.io", apiVersion("v1beta1", named("pods", "PodMetrics", "")))
	core := group("", apiVersion("v1", named("pods", "Pod", "pod", "po")))
	old := group("batch", apiVersion("v1", named("jobs", "Job", "job")), apiVersion("v1beta1", named("cronjobs", "CronJob", "cronjob", "cj")))
	young := group("batch", apiVersion("v1", named("cronjobs", "CronJob", "cronjob", "cj"), named("jobs", "Job", "job")))
	for name, sources := range map[string][]Source{
		"alone": {{Clusters: []string{"a"}, Groups: []APIGroup{core, openshift, metrics, young}}},
		"two":   {{Clusters: []string{"a"}, Groups: []APIGroup{core, openshift, old}}, {Clusters: []string{"b"}, Groups: []APIGroup{core, openshift, young, metrics}}},
		"three": {{Clusters: []string{"a", "b"}, Groups: []APIGroup{core, old}}, {Clusters: []string{"c"}, Groups: []APIGroup{core, metrics, openshift, young}}},
	} {
		c := Union(sources)
		if len(c.Conflicts) > 0 {
			t.Errorf("%s: conflicts are %v, want none", name, c.Conflicts)
		}
		got := described(c.Groups)
		for _, want := range []string{
			"/v1 pods Pod pod po", "metrics.k8s.io/v1beta1 pods PodMetrics ", "batch/v1 cronjobs CronJob cronjob cj", "batch/v1 jobs Job job",
			"template.openshift.io/v1 templates Template template", "template.openshift.io/v1 processedtemplates Template processedtemplate",
		} {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %q is not in %q", name, want, got)
			}
		}
		if got[0] != "/v1 pods Pod pod po" {
			t.Errorf("%s: %q comes first, want the pods of core", name, got[0])
		}
	}
}

// TestBudget has documents that have a little more than a cluster may, of all kinds.
func TestBudget(t *testing.T) {
	gv := schema.GroupVersion{Group: "a", Version: "v1"}
	aggregated := func(b *Budget, format string, most int, each string) error {
		_, err := ParseGroups([]byte(`{"kind":"APIGroupDiscoveryList","items":`+fmt.Sprintf(format, strings.Repeat(each+",", most)+each)+`}`), b)
		return err
	}
	const inResource = `[{"metadata":{"name":"a"},"versions":[{"version":"v1","resources":[{"resource":"x","scope":"Cluster",%%s}]}]}]`
	for name, parse := range map[string]func(b *Budget, more int) error{
		"groups":      func(b *Budget, more int) error { return aggregated(b, "[%s]", maxGroups-1+more, "{}") },
		"null groups": func(b *Budget, more int) error { return aggregated(b, "[%s]", maxGroups-1+more, "null") },
		"versions":    func(b *Budget, more int) error { return aggregated(b, `[{"versions":[%s]}]`, maxVersions-1+more, "{}") },
		"resources": func(b *Budget, more int) error {
			return aggregated(b, `[{"versions":[{"resources":[%s]}]}]`, maxResources-1+more, "{}")
		},
		"subresources": func(b *Budget, more int) error {
			return aggregated(b, strings.ReplaceAll(inResource, "%%s", `"subresources":[%s]`), maxSubresources-1+more, "{}")
		},
		"verbs": func(b *Budget, more int) error {
			return aggregated(b, strings.ReplaceAll(inResource, "%%s", `"verbs":[%s]`), maxWords-1+more, `"x"`)
		},
		"APIVersions": func(b *Budget, more int) error {
			_, err := ParseVersions([]byte(`{"kind":"APIVersions","versions":[`+strings.Repeat(`"v1",`, maxLegacyVersions-1+more)+`"v1"]}`), b)
			return err
		},
		"APIGroupList": func(b *Budget, more int) error {
			_, err := ParseGroupList([]byte(`{"kind":"APIGroupList","groups":[`+strings.Repeat(`{},`, maxGroups-1+more)+`{}]}`), b)
			return err
		},
		"versions of an APIGroupList": func(b *Budget, more int) error {
			_, err := ParseGroupList([]byte(`{"kind":"APIGroupList","groups":[{"versions":[`+strings.Repeat(`{},`, maxLegacyVersions-1+more)+`{}]}]}`), b)
			return err
		},
		"APIResourceList": func(b *Budget, more int) error {
			_, err := ParseResourceList([]byte(`{"kind":"APIResourceList","resources":[`+strings.Repeat(`{},`, maxLegacyResources-1+more)+`{}]}`), gv, b)
			return err
		},
		"documents": func(b *Budget, more int) error {
			_, err := ParseOpenAPIIndex([]byte(`{"paths":{`+strings.Repeat(`"a":{},`, maxDocuments-1+more)+`"a":{}}}`), b)
			return err
		},
		"definitions": func(b *Budget, more int) error {
			_, err := ParseSwagger([]byte(`{"swagger":"2.0","definitions":{`+strings.Repeat(`"a":{},`, maxPaths-1+more)+`"a":{}}}`), b)
			return err
		},
		"a text": func(b *Budget, more int) error {
			_, err := ParseGroups([]byte(`{"items":[],"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"`+strings.Repeat("x", maxText-2+more)+`"}}]}`), b)
			return err
		},
	} {
		if err := parse(&Budget{}, 0); err != nil {
			t.Errorf("%s: as many as there may be are refused: %v", name, err)
		}
		if err := parse(&Budget{}, 1); err == nil || !strings.Contains(err.Error(), ErrLimit.Error()) {
			t.Errorf("%s: got error %v for one more, want that there are too many", name, err)
		}
	}
}

// TestBudgetOfMemory has documents of the right form for which there is no memory left, or
// nobody waits any more.
func TestBudgetOfMemory(t *testing.T) {
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(io.ErrClosedPipe)
	verbs := []byte(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"a"},"versions":[{"version":"v1","resources":[` +
		strings.Repeat(`{"resource":"x","scope":"Cluster","verbs":["get","list"]},`, 1000) + `{}]}]}]}`)
	b := &Budget{}
	if groups, err := ParseGroups(verbs, b); err != nil || b.Held < 1000*int64(reflect.TypeFor[APIResource]().Size()) || cap(groups[0].Versions[0].Resources) != 1000 {
		t.Errorf("got error %v and %d bytes held, want those of 1,000 resources and no room for more", err, b.Held)
	}
	if _, err := ParseGroups(verbs, &Budget{Held: maxHeld - 1000}); !errors.Is(err, ErrLimit) {
		t.Errorf("got error %v without memory left, want that it is too large", err)
	}
	if _, err := ParseGroups(verbs, &Budget{Context: ended}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got error %v when nobody waits, want why", err)
	}
}
