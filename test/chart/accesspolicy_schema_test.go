package chart

import (
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/admission"
)

// TestAccessPolicyValidation does with AccessPolicies what a kube-apiserver does before it stores one.
func TestAccessPolicyValidation(t *testing.T) {
	definition, err := os.ReadFile("../../charts/cluster-proxy/files/accesspolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := admission.New(t, definition, "v1alpha1")
	const rules = "rules: [{name: a, expression: 'true'}]"
	many := func(n int, item string) string { return strings.Repeat(item+",", n) }
	for name, test := range map[string]struct{ policy, spec, want string }{
		"the design's example": {spec: `{subjects: [{kind: Group, name: ai-agents}], clusters: {clusterSets: [prod]}, mode: Warn,
			rules: [{name: read-only, expression: "request.verb in ['get', 'list', 'watch']", message: "agents only read on production"}, {name: no-secrets, expression: "request.resource != 'secrets'"}]}`},
		"everybody, everywhere":         {spec: "{" + rules + "}"},
		"a service account":             {spec: "{subjects: [{kind: ServiceAccount, name: robot, namespace: ci}], " + rules + "}"},
		"one without a namespace":       {spec: "{subjects: [{kind: ServiceAccount, name: robot}], " + rules + "}", want: "a ServiceAccount has a namespace"},
		"a user with a namespace":       {spec: "{subjects: [{kind: User, name: jane, namespace: ci}], " + rules + "}", want: "a ServiceAccount has a namespace"},
		"another kind":                  {spec: "{subjects: [{kind: Tenant, name: x}], " + rules + "}", want: "spec.subjects[0].kind"},
		"no name":                       {spec: "{subjects: [{kind: User}], " + rules + "}", want: "name"},
		"no rule":                       {spec: "{rules: []}", want: "spec.rules"},
		"no rules":                      {spec: "{mode: Enforce}", want: "spec.rules"},
		"a rule twice":                  {spec: "{rules: [{name: a, expression: 'true'}, {name: a, expression: 'false'}]}", want: "Duplicate"},
		"a rule of a bad name":          {spec: "{rules: [{name: 'A b', expression: 'true'}]}", want: "spec.rules[0].name"},
		"a rule of no expression":       {spec: "{rules: [{name: a}]}", want: "expression"},
		"a rule of an empty expression": {spec: "{rules: [{name: a, expression: ''}]}", want: "expression"},
		"a long expression":             {spec: "{rules: [{name: a, expression: '" + strings.Repeat("x", 4097) + "'}]}", want: "expression"},
		"a long message":                {spec: "{rules: [{name: a, expression: 'true', message: '" + strings.Repeat("x", 513) + "'}]}", want: "message"},
		"subjects without end":          {spec: "{subjects: [" + many(101, "{kind: User, name: x}") + "], " + rules + "}", want: "spec.subjects"},
		"no sets, which is not all":     {spec: "{clusters: {clusterSets: []}, " + rules + "}", want: "spec.clusters.clusterSets"},
		"another mode":                  {spec: "{mode: Log, " + rules + "}", want: "spec.mode"},
		"a long name":                   {policy: strings.Repeat("a", 64), spec: "{" + rules + "}", want: "at most 63 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.policy == "" {
				test.policy = "p"
			}
			policy := map[string]any{"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "AccessPolicy", "metadata": map[string]any{"name": test.policy}}
			policy["spec"] = admission.Decode(t, []byte("spec: "+test.spec))["spec"]
			errs := s.Admit(t, policy)
			if test.want == "" && len(errs) > 0 || test.want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), test.want)) {
				t.Errorf("got errors %v, want one that contains %q", errs.ToAggregate(), test.want)
			}
			if mode := policy["spec"].(map[string]any)["mode"]; test.want == "" && mode == nil {
				t.Error("the mode has no default")
			}
		})
	}
}

// TestAccessPolicyExamples holds the examples to the kind, to what they say of requests, and to the page that shows them.
func TestAccessPolicyExamples(t *testing.T) {
	definition, err := os.ReadFile("../../charts/cluster-proxy/files/accesspolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/how-to/access-policies.md")
	if err != nil {
		t.Fatal(err)
	}
	s := admission.New(t, definition, "v1alpha1")
	agent, onCall, platform := &user.DefaultInfo{Name: "a", Groups: []string{"ai-agents"}}, &user.DefaultInfo{Name: "o", Groups: []string{"on-call"}}, &user.DefaultInfo{Name: "p", Groups: []string{"platform"}}
	pass := &user.DefaultInfo{Name: "system:serviceaccount:cluster-proxy-passes:x-0123abcd", Groups: []string{"system:serviceaccounts:cluster-proxy-passes"}}
	noon, night := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC), time.Date(2026, 7, 1, 17, 0, 0, 0, time.UTC) // 19:00 in Berlin
	exec := accesspolicy.Request{Verb: "create", Resource: "pods", Subresource: "exec", Upgrade: true, Now: noon}
	atNight, connect := exec, accesspolicy.Request{Sight: accesspolicy.Nothing, Upgrade: true, Verb: "create", Now: noon}
	atNight.Now = night
	secrets, pods := accesspolicy.Request{Verb: "list", Resource: "secrets", Now: night}, accesspolicy.Request{Verb: "list", Resource: "pods", Now: night}
	deletes := accesspolicy.Request{Verb: "delete", Resource: "pods", Now: noon}
	for file, tries := range map[string][]struct {
		name    string
		user    user.Info
		request accesspolicy.Request
		objects bool
	}{
		"agents-only-read.yaml": {{"a list", agent, pods, false}, {"Secrets", agent, secrets, true}, {"a deletion", agent, deletes, true}, {"exec", agent, exec, true}, {"CONNECT", agent, connect, true},
			{"a pass that deletes", pass, deletes, true}, {"another user", onCall, deletes, false}},
		"no-shell-at-night.yaml": {{"exec at noon", agent, exec, false}, {"exec at night", agent, atNight, true}, {"exec at night, on call", onCall, atNight, false}, {"a list at night", agent, pods, false}, {"CONNECT", onCall, connect, true}},
		"no-secrets.yaml":        {{"Secrets", agent, secrets, true}, {"Secrets for their group", platform, secrets, false}, {"a list", agent, pods, false}, {"a deletion", agent, deletes, false}},
	} {
		content := example(t, "access-policies/"+file)
		if !strings.Contains(string(page), "\n\n    "+strings.ReplaceAll(strings.TrimSuffix(string(content), "\n"), "\n", "\n    ")+"\n\n") {
			t.Errorf("docs/how-to/access-policies.md does not show %s as it is", file)
		}
		if errs := s.Admit(t, admission.Decode(t, content)); len(errs) > 0 {
			t.Errorf("%s: %v", file, errs.ToAggregate())
		}
		var object v1alpha1.AccessPolicy
		if err := yaml.UnmarshalStrict(content, &object); err != nil {
			t.Fatal(err)
		}
		policy, err := accesspolicy.Compile(&object, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		set := accesspolicy.NewSet([]*accesspolicy.Policy{policy})
		for _, try := range tries {
			try.request.User = try.user
			if decision := set.Decide(&try.request); (len(decision.Objections) > 0) != try.objects {
				t.Errorf("%s, %s: %+v, want it to object: %t", file, try.name, decision, try.objects)
			}
		}
	}
}
