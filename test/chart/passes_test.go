package chart

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	testadmission "open-cluster-management.io/cluster-proxy/test/testkit/admission"
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
		"by default":             {version: "v1.30.0", want: 11},
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
	for _, role := range []string{"ClusterRole/cluster-proxy-pass-issuer", "Role/cluster-proxy-pass-issuer", "Role/cluster-proxy-pass-accounts", "ClusterRole/open-cluster-management:cluster-proxy:addon-manager"} {
		for _, rule := range rendered.rules(t)[role] {
			if strings.HasPrefix(role, "ClusterRole/open") && !slices.ContainsFunc(rule.Resources, func(r string) bool { return strings.HasPrefix(r, "passes") }) {
				continue
			}
			got = append(got, role+": "+strings.Join(rule.Resources, ",")+" "+strings.Join(rule.Verbs, ","))
		}
	}
	want := []string{
		"ClusterRole/cluster-proxy-pass-issuer: passes get,list,create,delete",
		"ClusterRole/cluster-proxy-pass-issuer: passes/finalizers update",
		"ClusterRole/cluster-proxy-pass-issuer: clusterroles,clusterrolebindings create",
		"Role/cluster-proxy-pass-issuer: serviceaccounts delete",
		"Role/cluster-proxy-pass-issuer: serviceaccounts/token create",
		"Role/cluster-proxy-pass-accounts: serviceaccounts create",
		"ClusterRole/open-cluster-management:cluster-proxy:addon-manager: passes get,list,watch,delete",
		"ClusterRole/open-cluster-management:cluster-proxy:addon-manager: passes/finalizers update",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	inside := []string{"Role/cluster-proxy-pass-issuer", "Role/cluster-proxy-pass-accounts", "RoleBinding/cluster-proxy-pass-accounts"}
	for _, name := range inside {
		if ns := rendered.byName[name].GetNamespace(); ns != identity.PassNamespace {
			t.Errorf("%s is in namespace %q, want %q", name, ns, identity.PassNamespace)
		}
	}
	if rendered.byName["Namespace/"+identity.PassNamespace] == nil {
		t.Errorf("there is no namespace %q", identity.PassNamespace)
	}
	for name, object := range rendered.byName {
		if object.GetNamespace() == identity.PassNamespace && !slices.Contains(inside, name) {
			t.Errorf("%s is in the namespace of passes", name)
		}
	}
}

// TestPassPolicies reads what the policies are about; TestPassPoliciesDecide has them decide, and
// TestHostile has a kube-apiserver decide.
func TestPassPolicies(t *testing.T) {
	rendered := mustRender(t, "")
	for _, name := range []string{"cluster-proxy-passes", "cluster-proxy-pass-accounts", "cluster-proxy-pass-makers"} {
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
		// The policy composes the same name as identity.PassAccount.
		if want := "variables.account == params.metadata.name + '-' + params.metadata.uid.substring(0, 8)"; policy.Spec.Variables[1].Expression != want || identity.PassAccount("ann", "0123456789") != "ann-01234567" {
			t.Errorf("the policy has %q for the name of an account, and package identity %q", policy.Spec.Variables[1].Expression, identity.PassAccount("ann", "0123456789"))
		}
	}
}

// mayRevoke is an authorizer that allows one user to revoke passes.
func mayRevoke(name string) authorizer.AuthorizerFunc {
	return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == name && a.GetVerb() == "revoke" && a.GetResource() == "passes" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// TestPassPoliciesDecide asks each policy about requests, while there is a pass of jane, and after it.
func TestPassPoliciesDecide(t *testing.T) {
	const (
		manager = "system:serviceaccount:" + namespace + ":cluster-proxy-addon-manager"
		passUID = "3760aecd-0000-0000-0000-000000000000"
		of      = "ann-3760aecd"
	)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	passOf := func(madeBy string, life time.Duration) map[string]any {
		return map[string]any{"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "Pass",
			"metadata": map[string]any{"name": "ann", "uid": passUID, "creationTimestamp": now.Format(time.RFC3339)},
			"spec":     map[string]any{"madeBy": madeBy, "expires": now.Add(life).Format(time.RFC3339)}}
	}
	pass, account, token := schema.GroupVersionResource{Group: "proxy.open-cluster-management.io", Version: "v1alpha1", Resource: "passes"}, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "token"
	const policies, accounts, makers = "cluster-proxy-passes", "cluster-proxy-pass-accounts", "cluster-proxy-pass-makers"
	for name, tc := range map[string]struct {
		policy, user string
		operation    admission.Operation
		resource     schema.GroupVersionResource
		subresource  string
		name         string
		object, old  map[string]any
		want         string
	}{
		"a pass":                              {policy: policies, user: "jane", operation: admission.Create, resource: pass, object: passOf("jane", 720*time.Hour)},
		"a pass of another":                   {policy: policies, user: "eve", operation: admission.Create, resource: pass, object: passOf("jane", time.Hour), want: "must be the user who makes it"},
		"a pass for too long":                 {policy: policies, user: "jane", operation: admission.Create, resource: pass, object: passOf("jane", 721*time.Hour), want: "a pass lasts 720 hours at most"},
		"a pass for ever":                     {policy: policies, user: "jane", operation: admission.Create, resource: pass, object: passOf("jane", 100*365*24*time.Hour), want: "passes.maxHours"},
		"its end by jane":                     {policy: policies, user: "jane", operation: admission.Delete, resource: pass, old: passOf("jane", time.Hour)},
		"its end by the addon manager":        {policy: policies, user: manager, operation: admission.Delete, resource: pass, old: passOf("jane", time.Hour)},
		"its end by one who may":              {policy: policies, user: "root", operation: admission.Delete, resource: pass, old: passOf("jane", time.Hour)},
		"its end by eve":                      {policy: policies, user: "eve", operation: admission.Delete, resource: pass, old: passOf("jane", time.Hour), want: "another user made this pass"},
		"a token for jane":                    {policy: accounts, user: "jane", operation: admission.Create, resource: account, subresource: token, name: of},
		"a token for eve":                     {policy: accounts, user: "eve", operation: admission.Create, resource: account, subresource: token, name: of, want: "another user made the pass"},
		"a token for one who may end it":      {policy: accounts, user: "root", operation: admission.Create, resource: account, subresource: token, name: of, want: "another user made the pass"},
		"the account's end by jane":           {policy: accounts, user: "jane", operation: admission.Delete, resource: account, name: of},
		"the account's end by eve":            {policy: accounts, user: "eve", operation: admission.Delete, resource: account, name: of, want: "another user made the pass"},
		"the account's end by one who may":    {policy: accounts, user: "root", operation: admission.Delete, resource: account, name: of},
		"the account's end by the controller": {policy: accounts, user: "system:serviceaccount:kube-system:generic-garbage-collector", operation: admission.Delete, resource: account, name: of},
		"its account by the addon manager":    {policy: makers, user: manager, operation: admission.Create, resource: account, name: of},
		"its account by jane":                 {policy: makers, user: "jane", operation: admission.Create, resource: account, name: of, want: "the addon manager makes the accounts"},
		"its account after its end":           {policy: makers, user: "eve", operation: admission.Create, resource: account, name: of, want: "the addon manager makes the accounts"},
		"an account of no pass":               {policy: makers, user: "root", operation: admission.Create, resource: account, name: "x", want: "the addon manager makes the accounts"},
		"account default by the controller":   {policy: makers, user: "system:serviceaccount:kube-system:service-account-controller", operation: admission.Create, resource: account, name: "default"},
		"a token of account default":          {policy: makers, user: "jane", operation: admission.Create, resource: account, subresource: token, name: "default", want: "account default is of no pass"},
		"a token of another account":          {policy: makers, user: "jane", operation: admission.Create, resource: account, subresource: token, name: of},
	} {
		t.Run(name, func(t *testing.T) {
			rendered := mustRender(t, "")
			policy := as[admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered.byName["ValidatingAdmissionPolicy/"+tc.policy])
			var parameter map[string]any
			if policy.Spec.ParamKind != nil {
				parameter = passOf("jane", time.Hour)
			}
			object := func(content map[string]any) runtime.Object {
				if content == nil {
					return nil
				}
				return &unstructured.Unstructured{Object: content}
			}
			if tc.resource == account && tc.operation == admission.Create {
				tc.object = map[string]any{"metadata": map[string]any{"name": tc.name}}
			}
			request := admission.NewAttributesRecord(object(tc.object), object(tc.old), schema.GroupVersionKind{}, identity.PassNamespace, tc.name, tc.resource, tc.subresource, tc.operation, nil, false, &user.DefaultInfo{Name: tc.user})
			got := testadmission.NewPolicy(t, &policy).Refusal(t, request, parameter, mayRevoke("root"))
			if (got != "") != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("the refusal is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPassValidation(t *testing.T) {
	definition, err := os.ReadFile("../../charts/cluster-proxy/files/passes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	schema := testadmission.New(t, definition, "v1alpha1")
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
		maps.Copy(pass, testadmission.Decode(t, []byte("spec: {"+test.spec+"}")))
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
