package chart

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/admission"
)

// ofPasses are the names of the chart's objects for passes, without the CRD.
func ofPasses(rendered objects) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(rendered.byName)) {
		if strings.Contains(name, "pass") && !strings.HasPrefix(name, "CustomResourceDefinition/") {
			names = append(names, name)
		}
	}
	return names
}

// TestPassesNeedTheHub wants nobody to be let make passes on hubs without the policies that
// keep makers from each other's passes, nor where nothing is served that passes are for.
func TestPassesNeedTheHub(t *testing.T) {
	for name, test := range map[string]struct {
		values, version string
		want            int
	}{
		"by default":             {version: "v1.30.0", want: 7},
		"before Kubernetes 1.30": {version: "v1.29.15+k3s1"},
		"switched off":           {version: "v1.36.0", values: "passes: {enabled: false}"},
		"no aggregated API":      {version: "v1.36.0", values: "proxyAPI: {aggregatedAPI: false}"},
		"no proxy API":           {version: "v1.36.0", values: "enableServiceProxy: false"},
	} {
		rendered, err := renderFor(t, load(t), test.values, test.version)
		if err != nil {
			t.Fatal(err)
		}
		if got := ofPasses(rendered); len(got) != test.want {
			t.Errorf("%s: %q, want %d", name, got, test.want)
		}
	}
}

// TestPassRights wants the roles to have nothing else, and the accounts to be in a namespace
// with no other: a right to tokens in a namespace is one to the tokens of all accounts there.
func TestPassRights(t *testing.T) {
	rendered := mustRender(t, "")
	var got []string
	for _, role := range []string{"ClusterRole/cluster-proxy-pass-issuer", "Role/cluster-proxy-pass-issuer", "ClusterRole/open-cluster-management:cluster-proxy:addon-manager"} {
		for _, rule := range rendered.rules(t)[role] {
			if strings.HasPrefix(role, "ClusterRole/open") && !slices.Contains(rule.Resources, "passes") {
				continue
			}
			got = append(got, role+": "+strings.Join(rule.Resources, ",")+" "+strings.Join(rule.Verbs, ","))
		}
	}
	want := []string{
		"ClusterRole/cluster-proxy-pass-issuer: passes get,list,create,delete",
		"ClusterRole/cluster-proxy-pass-issuer: passes/finalizers update",
		"ClusterRole/cluster-proxy-pass-issuer: clusterroles,clusterrolebindings create",
		"Role/cluster-proxy-pass-issuer: serviceaccounts create,delete",
		"Role/cluster-proxy-pass-issuer: serviceaccounts/token create",
		"ClusterRole/open-cluster-management:cluster-proxy:addon-manager: passes get,list,watch,delete",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	if ns := rendered.byName["Role/cluster-proxy-pass-issuer"].GetNamespace(); ns != identity.PassNamespace {
		t.Errorf("the Role is in namespace %q, want %q", ns, identity.PassNamespace)
	}
	if rendered.byName["Namespace/"+identity.PassNamespace] == nil {
		t.Errorf("there is no namespace %q", identity.PassNamespace)
	}
	for name, object := range rendered.byName {
		if object.GetNamespace() == identity.PassNamespace && name != "Role/cluster-proxy-pass-issuer" {
			t.Errorf("%s is in the namespace of passes", name)
		}
	}
}

// TestPassPolicies reads what the policies say; TestPassesOfOthers asks a kube-apiserver what
// they do.
func TestPassPolicies(t *testing.T) {
	rendered := mustRender(t, "")
	for _, name := range []string{"cluster-proxy-passes", "cluster-proxy-pass-accounts"} {
		policy := as[admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered.byName["ValidatingAdmissionPolicy/"+name])
		binding := as[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, rendered.byName["ValidatingAdmissionPolicyBinding/"+name])
		if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || binding.Spec.PolicyName != name ||
			!slices.Equal(binding.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
			t.Errorf("what policy %s refuses is let through: %+v, %+v", name, policy.Spec, binding.Spec)
		}
		if (policy.Spec.ParamKind == nil) != (binding.Spec.ParamRef == nil) {
			t.Errorf("policy %s and its binding do not agree on parameters", name)
		}
		if policy.Spec.ParamKind == nil {
			continue
		}
		if all := binding.Spec.ParamRef.Selector; all == nil || len(all.MatchLabels)+len(all.MatchExpressions) > 0 {
			t.Errorf("policy %s does not look at all passes: %+v", name, binding.Spec.ParamRef)
		}
		if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": identity.PassNamespace}, policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels); diff != "" {
			t.Errorf("namespaces (-want +got):\n%s", diff)
		}
		// What the policy composes is what identity.PassAccount does.
		if want := "variables.account == params.metadata.name + '-' + params.metadata.uid.substring(0, 8)"; policy.Spec.Variables[1].Expression != want || identity.PassAccount("ann", "0123456789") != "ann-01234567" {
			t.Errorf("the policy has %q for the name of an account, and package identity %q", policy.Spec.Variables[1].Expression, identity.PassAccount("ann", "0123456789"))
		}
	}
}

func TestPassValidation(t *testing.T) {
	definition, err := os.ReadFile("../../charts/cluster-proxy/files/passes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	schema := admission.New(t, definition, "v1alpha1")
	const good = "madeBy: jane, role: Viewer, expires: '2026-01-02T03:04:05Z', "
	for name, test := range map[string]struct{ name, spec, want string }{
		"of clusters":     {spec: good + "clusters: [a]"},
		"of sets":         {spec: good + "clusterSets: [s], view: all"},
		"of nothing":      {spec: good, want: "a pass is for clusters, clusterSets, or both"},
		"of no clusters":  {spec: good + "clusters: []", want: "spec.clusters"},
		"twice":           {spec: good + "clusters: [a, a]", want: "spec.clusters"},
		"another role":    {spec: "madeBy: jane, role: admin, expires: '2026-01-02T03:04:05Z', clusters: [a]", want: "spec.role"},
		"by nobody":       {spec: "madeBy: '', role: User, expires: '2026-01-02T03:04:05Z', clusters: [a]", want: "spec.madeBy"},
		"without an end":  {spec: "madeBy: jane, role: User, clusters: [a]", want: "spec.expires"},
		"no time":         {spec: "madeBy: jane, role: User, expires: soon, clusters: [a]", want: "spec.expires"},
		"of a long name":  {name: strings.Repeat("a", 64), spec: good + "clusters: [a]", want: "at most 63"},
		"an unknown word": {spec: good + "clusters: [a], token: x", want: "token"},
	} {
		pass := map[string]any{"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "Pass", "metadata": map[string]any{"name": test.name + "p"}}
		maps.Copy(pass, admission.Decode(t, []byte("spec: {"+test.spec+"}")))
		errs := schema.Admit(t, pass)
		if (len(errs) > 0) != (test.want != "") || test.want != "" && !strings.Contains(errs.ToAggregate().Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, errs, test.want)
		}
	}
}

// TestPassNamespaceOfOthers wants the namespace to be made and upgraded by the release that made it, and
// left alone by others: Helm would refuse the whole release.
func TestPassNamespaceOfOthers(t *testing.T) {
	mine := map[string]any{"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
	for name, test := range map[string]struct {
		annotations map[string]any
		want        bool
	}{
		"its own":                {mine, true},
		"of another release":     {map[string]any{"meta.helm.sh/release-name": "other", "meta.helm.sh/release-namespace": namespace}, false},
		"of an administrator":    {nil, false},
		"of another's namespace": {map[string]any{"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "other"}, false},
	} {
		metadata := map[string]any{"name": identity.PassNamespace}
		if test.annotations != nil {
			metadata["annotations"] = test.annotations
		}
		live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}}
		c := load(t)
		values, err := chartutil.ToRenderValues(c, map[string]any{}, chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsUpgrade: true},
			&chartutil.Capabilities{KubeVersion: chartutil.KubeVersion{Version: "v1.36.0"}})
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.RenderWithClientProvider(c, values, liveHub{dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), live)})
		if err != nil {
			t.Fatal(err)
		}
		got := files["cluster-proxy/templates/passes.yaml"]
		if strings.Contains(got, "kind: Namespace\n") != test.want || !strings.Contains(got, "kind: Role\n") {
			t.Errorf("a namespace %s: want it in the release: %v\n%.300s", name, test.want, got)
		}
	}
}
