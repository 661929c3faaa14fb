package chart

import (
	"os"
	"strings"
	"testing"

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
