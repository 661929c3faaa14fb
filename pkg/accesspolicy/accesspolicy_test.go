package accesspolicy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

type selected []string

func (s selected) Selects(cluster string, _ map[string]string) bool {
	for _, name := range s {
		if name == cluster {
			return true
		}
	}
	return false
}

// policyOf returns a policy of expressions, whose rules are called a, b and so on.
func policyOf(name string, mode v1alpha1.AccessPolicyMode, expressions ...string) *v1alpha1.AccessPolicy {
	policy := &v1alpha1.AccessPolicy{}
	policy.Name, policy.Spec.Mode = name, mode
	for i, expression := range expressions {
		policy.Spec.Rules = append(policy.Spec.Rules, v1alpha1.AccessPolicyRule{Name: string(rune('a' + i)), Expression: expression})
	}
	return policy
}

// setOf compiles policies of all clusters. Some may not compile.
func setOf(policies ...*v1alpha1.AccessPolicy) *Set {
	var compiled []*Policy
	for _, policy := range policies {
		p, _ := Compile(policy, nil)
		compiled = append(compiled, p)
	}
	return NewSet(compiled)
}

var jane = &user.DefaultInfo{Name: "jane", UID: "u1", Groups: []string{"devs", "ai-agents"}, Extra: map[string][]string{"scopes": {"read", "write"}}}

// monday is 23:30 in Berlin, and 22:30 UTC.
var monday = time.Date(2026, 11, 30, 22, 30, 0, 0, time.UTC)

func janeGets() *Request {
	return &Request{User: jane, Verb: "get", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Namespace: "shop", Name: "web",
		Path: "/apis/apps/v1/namespaces/shop/deployments/web/scale", Now: monday,
		Cluster: Cluster{Name: "eu-1", Labels: map[string]string{"env": "prod"}, Claims: map[string]string{"region": "eu"}, Sets: func() []string { return []string{"prod", "global"} }}}
}

func TestVariables(t *testing.T) {
	for expression, want := range map[string]string{
		"true":  "",
		"false": "rule",
		"request.verb in ['get', 'list', 'watch']":                              "",
		"request.verb == 'delete'":                                              "rule",
		"request.group + '/' + request.version == 'apps/v1'":                    "",
		"request.resource + '/' + request.subresource == 'deployments/scale'":   "",
		"request.namespace + '/' + request.name == 'shop/web'":                  "",
		"request.path.startsWith('/apis/apps/')":                                "",
		"!request.dryRun && !request.upgrade && request.service == ''":          "",
		"user.name == 'jane' && user.uid == 'u1' && 'ai-agents' in user.groups": "",
		"user.extra['scopes'].exists(s, s == 'write')":                          "",
		"user.extra['nothing'].size() == 0":                                     "failed",
		"cluster.name == 'eu-1' && 'prod' in cluster.sets":                      "",
		"cluster.labels['env'] == 'prod' && cluster.claims['region'] == 'eu'":   "",
		"cluster.labels['other'] == 'prod'":                                     "failed",
		"cluster.labels[?'other'].orValue('') != 'prod'":                        "",
		"!('other' in cluster.labels) || cluster.labels['other'] != 'prod'":     "",
		"cluster.labels['other'] == 'prod' || true":                             "", // as CEL has it: the error changes nothing
		"now.getHours() == 22":                                                  "",
		"now.getHours('Europe/Berlin') == 23 && now.getDayOfWeek() == 1":        "",
		"now < timestamp('2026-12-01T00:00:00Z')":                               "",
		"now.getHours('No/Where') == 23":                                        "failed",
		"request.name.matches('^[a-z]+$')":                                      "",
		"request.verb":                                                          "failed",
		"dyn(request.verb) == 'get'":                                            "",
		"dyn(true)":                                                             "failed", // it may be anything
		"request.body == ''":                                                    "failed",
		"object.metadata.name == ''":                                            "failed",
		"request.verb ==":                                                       "failed",
		"":                                                                      "failed",
		"1 / 0 == 1":                                                            "failed",
		"[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f >= 0))))))": "failed", // its cost
	} {
		d := setOf(policyOf("p", v1alpha1.ModeEnforce, expression)).Decide(janeGets())
		got := ""
		if o := d.Refusal(); o != nil {
			got = string(o.Reason)
		}
		if got != want {
			t.Errorf("%s: refused for reason %q, want %q (%+v)", expression, got, want, d.Objections)
		}
	}
}

// TestUnknownCaller has a caller whom the hub does not know, and a cluster of which nothing is known.
func TestUnknownCaller(t *testing.T) {
	r := &Request{Verb: "get", Cluster: Cluster{Name: "c"}, Now: monday}
	expression := "user.name == '' && user.uid == '' && user.groups.size() == 0 && user.extra.size() == 0 && cluster.labels.size() + cluster.claims.size() + cluster.sets.size() == 0"
	if o := setOf(policyOf("p", "", expression)).Decide(r); o.Refusal() != nil {
		t.Error(o.Refusal().Message)
	}
	if d := setOf(&v1alpha1.AccessPolicy{Spec: v1alpha1.AccessPolicySpec{Subjects: []v1alpha1.AccessPolicySubject{{Kind: "User", Name: ""}}}}).Decide(r); len(d.Asked) != 0 {
		t.Error("a policy of users selects a caller who is none")
	}
}

func TestSelection(t *testing.T) {
	robot := &user.DefaultInfo{Name: "system:serviceaccount:ci:robot"}
	for name, tc := range map[string]struct {
		subjects []v1alpha1.AccessPolicySubject
		clusters Clusters
		user     user.Info
		want     bool
	}{
		"everybody":                    {user: jane, want: true},
		"everybody, nobody known":      {want: true},
		"a user":                       {subjects: []v1alpha1.AccessPolicySubject{{Kind: "User", Name: "jane"}}, user: jane, want: true},
		"another user":                 {subjects: []v1alpha1.AccessPolicySubject{{Kind: "User", Name: "joe"}}, user: jane},
		"a group":                      {subjects: []v1alpha1.AccessPolicySubject{{Kind: "User", Name: "joe"}, {Kind: "Group", Name: "ai-agents"}}, user: jane, want: true},
		"another group":                {subjects: []v1alpha1.AccessPolicySubject{{Kind: "Group", Name: "jane"}}, user: jane},
		"a service account":            {subjects: []v1alpha1.AccessPolicySubject{{Kind: "ServiceAccount", Name: "robot", Namespace: "ci"}}, user: robot, want: true},
		"of another namespace":         {subjects: []v1alpha1.AccessPolicySubject{{Kind: "ServiceAccount", Name: "robot", Namespace: "cd"}}, user: robot},
		"a user, nobody known":         {subjects: []v1alpha1.AccessPolicySubject{{Kind: "User", Name: "jane"}}},
		"a kind that there is not yet": {subjects: []v1alpha1.AccessPolicySubject{{Kind: "Tenant", Name: "x"}}, user: jane, want: true},
		"a cluster":                    {clusters: selected{"eu-1"}, user: jane, want: true},
		"other clusters":               {clusters: selected{"eu-2"}, user: jane},
	} {
		object := policyOf("p", v1alpha1.ModeEnforce, "false")
		object.Spec.Subjects = tc.subjects
		p, err := Compile(object, tc.clusters)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := janeGets()
		r.User = tc.user
		d := NewSet([]*Policy{p}).Decide(r)
		if got := d.Refusal() != nil; got != tc.want || got != (len(d.Asked) == 1) {
			t.Errorf("%s: refused %t, asked %v; want %t", name, got, d.Asked, tc.want)
		}
	}
}

// TestImpersonation has jane make a request as joe. A policy has the one whom it selects, and both of
// them if it selects both.
func TestImpersonation(t *testing.T) {
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"ops"}}
	refused := func(of string) string { return fmt.Sprintf(`AccessPolicy "p" refuses the request%s by rule "a"`, of) }
	asJane := refused(` of "jane", whoever is impersonated,`)
	for _, tc := range []struct {
		name, group, expression string
		mode                    v1alpha1.AccessPolicyMode
		asked                   bool
		want                    string
	}{
		{name: "of the requester's group", group: "ai-agents", expression: "false", asked: true, want: asJane},
		{name: "of the other's group", group: "ops", expression: "false", asked: true, want: refused("")},
		{name: "of neither", group: "others", expression: "false"},
		{name: "of the requester's group, which reads the user", group: "ai-agents", expression: "user.name == 'jane'", asked: true},
		{name: "of the other's group, which reads the user", group: "ops", expression: "user.name == 'joe'", asked: true},
		{name: "of everybody, true of both", expression: "user.name in ['jane', 'joe']", asked: true},
		{name: "of everybody, not true of the requester", expression: "!('ai-agents' in user.groups)", asked: true, want: asJane},
		{name: "of everybody, not true of the other", expression: "user.name == 'jane'", asked: true, want: refused("")},
		{name: "of everybody, not true of either", expression: "false", asked: true, want: refused("")},
		{name: "that warns", group: "ai-agents", expression: "false", mode: v1alpha1.ModeWarn, asked: true,
			want: `AccessPolicy "p" would refuse the request of "jane", whoever is impersonated, if it were enforced by rule "a"`},
		{name: "that warns of both", expression: "false", mode: v1alpha1.ModeWarn, asked: true, want: `AccessPolicy "p" would refuse the request if it were enforced by rule "a"`},
	} {
		object := policyOf("p", tc.mode, tc.expression)
		if tc.group != "" {
			object.Spec.Subjects = []v1alpha1.AccessPolicySubject{{Kind: "Group", Name: tc.group}}
		}
		r := janeGets()
		r.User, r.Impersonator = joe, jane
		d, got := setOf(object).Decide(r), ""
		for _, o := range d.Objections {
			got += o.Message
		}
		if got != tc.want || (len(d.Asked) == 1) != tc.asked || len(d.Asked) > 1 {
			t.Errorf("a policy %s: asked %v, %q; want %q", tc.name, d.Asked, got, tc.want)
		}
	}
}

func TestSight(t *testing.T) {
	for expression, want := range map[string]Sight{
		"user.name == 'jane'":                                                Nothing,
		"cluster.name == 'x' || now.getHours() > 3":                          Nothing,
		"['a'].exists(request, request == 'a')":                              Nothing, // its own variable
		"request.verb == 'get'":                                              NoObjects,
		"!request.dryRun && !request.upgrade && request.service == ''":       NoObjects,
		"user.name == 'jane' || request.verb == 'get'":                       NoObjects,
		"dyn(request) != 1":                                                  NoObjects,
		"request.resource != 'secrets'":                                      Whole,
		"!has(request.resource) || request.resource != 'secrets'":            Whole,
		"request.?resource.orValue('') != 'secrets'":                         Whole,
		"true || request.path == ''":                                         Whole,
		"request.namespace == 'x' || request.name == 'x'":                    Whole,
		"request.group + request.version == '' || request.subresource == ''": Whole,
	} {
		program, sight, err := compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if sight != want || program == nil {
			t.Errorf("%s: has to see %d, want %d", expression, sight, want)
		}
	}
	// Expressions that hide from the type checker have nothing to read.
	for _, expression := range []string{"dyn(request).resource != 'secrets'", "dyn(request)['resource'] != 'secrets'"} {
		r := janeGets()
		r.Sight = NoObjects
		if o := refusalOf(setOf(policyOf("p", "", expression)), r); o == nil || o.Reason != Failed {
			t.Errorf("%s: a search has %+v, want it refused", expression, o)
		}
	}
	for _, tc := range []struct {
		sight      Sight
		expression string
		want       Reason
	}{
		{Nothing, "user.name == 'jane'", ""},
		{Nothing, "user.name == 'joe'", NotTrue},
		{Nothing, "request.verb == 'get'", Hidden},
		{Nothing, "request.verb", Failed},
		{NoObjects, "request.verb == 'get'", ""},
		{NoObjects, "request.verb == 'list'", NotTrue},
		{NoObjects, "request.resource != 'secrets'", Hidden},
	} {
		r := janeGets()
		r.Sight = tc.sight
		var got Reason
		if o := refusalOf(setOf(policyOf("p", "", tc.expression)), r); o != nil {
			got = o.Reason
		}
		if got != tc.want {
			t.Errorf("%s with sight %d: refused for reason %q, want %q", tc.expression, tc.sight, got, tc.want)
		}
	}
}

func refusalOf(s *Set, r *Request) *Objection {
	d := s.Decide(r)
	return d.Refusal()
}

func TestDecide(t *testing.T) {
	withMessage := policyOf("b-message", v1alpha1.ModeEnforce, "request.verb == 'list'")
	withMessage.Spec.Rules[0].Message = "only lists"
	unselected := policyOf("a-unselected", v1alpha1.ModeEnforce, "false")
	unselected.Spec.Subjects = []v1alpha1.AccessPolicySubject{{Kind: "User", Name: "joe"}}
	for name, tc := range map[string]struct {
		policies []*v1alpha1.AccessPolicy
		asked    []string
		messages []string
		refused  bool
	}{
		"none":       {},
		"unselected": {policies: []*v1alpha1.AccessPolicy{unselected}},
		"all true":   {policies: []*v1alpha1.AccessPolicy{policyOf("p", v1alpha1.ModeEnforce, "true", "request.verb == 'get'")}, asked: []string{"p"}},
		"the second rule": {policies: []*v1alpha1.AccessPolicy{policyOf("p", v1alpha1.ModeEnforce, "true", "false", "false")}, asked: []string{"p"},
			messages: []string{`AccessPolicy "p" refuses the request by rule "b"`}, refused: true},
		"a message": {policies: []*v1alpha1.AccessPolicy{withMessage}, asked: []string{"b-message"},
			messages: []string{`AccessPolicy "b-message" refuses the request by rule "a": only lists`}, refused: true},
		"no mode": {policies: []*v1alpha1.AccessPolicy{policyOf("p", "", "false")}, asked: []string{"p"},
			messages: []string{`AccessPolicy "p" refuses the request by rule "a"`}, refused: true},
		"the first that refuses ends it": {
			policies: []*v1alpha1.AccessPolicy{policyOf("d", v1alpha1.ModeEnforce, "false"), policyOf("c", v1alpha1.ModeEnforce, "false"), policyOf("a", v1alpha1.ModeWarn, "false"), policyOf("b", v1alpha1.ModeAudit, "false"), unselected},
			asked:    []string{"a", "b", "c"},
			messages: []string{`AccessPolicy "a" would refuse the request if it were enforced by rule "a"`, `AccessPolicy "b" would refuse the request if it were enforced by rule "a"`, `AccessPolicy "c" refuses the request by rule "a"`}, refused: true},
		"a warning does not refuse": {policies: []*v1alpha1.AccessPolicy{policyOf("a", v1alpha1.ModeWarn, "nonsense")}, asked: []string{"a"},
			messages: []string{`AccessPolicy "a" would refuse the request if it were enforced because it cannot be evaluated, rule "a": compiling it: 1:1: undeclared reference to 'nonsense' (in container '')`}},
	} {
		d := setOf(tc.policies...).Decide(janeGets())
		var messages []string
		for _, o := range d.Objections {
			messages = append(messages, o.Message)
		}
		if diff := cmp.Diff(tc.asked, d.Asked) + cmp.Diff(tc.messages, messages); diff != "" || (d.Refusal() != nil) != tc.refused {
			t.Errorf("%s: refused %t, want %t; %s", name, d.Refusal() != nil, tc.refused, diff)
		}
	}
}

// TestCostOfAllRules has rules each of which costs less than one may.
func TestCostOfAllRules(t *testing.T) {
	dear := "lists.range(300).all(a, lists.range(100).all(b, a + b >= 0))"
	if _, _, err := compile(dear); err != nil {
		dear = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, a+b+c+d >= 0))))"
	}
	if o := refusalOf(setOf(policyOf("p", "", dear)), janeGets()); o != nil {
		t.Fatalf("one rule: %s", o.Message)
	}
	var rules []string
	for range 20 {
		rules = append(rules, dear)
	}
	if o := refusalOf(setOf(policyOf("p", "", rules...)), janeGets()); o == nil || o.Reason != Failed || !strings.Contains(o.Message, "cost too much") {
		t.Errorf("twenty rules: %+v, want them to cost too much", o)
	}
}

func TestCompileSaysWhere(t *testing.T) {
	_, err := Compile(policyOf("p", "", "true", "request.verbs == 'get'\n && nope", "request.verb"), nil)
	want := "rule \"b\": compiling it: 1:8: undefined field 'verbs'; 2:5: undeclared reference to 'nope' (in container '')\n" +
		"rule \"c\": it is of type string, and must be of type bool"
	if fmt.Sprint(err) != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// FuzzDecide has any expression as a rule, and texts of a user's choice in a request. A rule that
// does not compile refuses, and none reads the hidden part of a search or a connection.
func FuzzDecide(f *testing.F) {
	for _, expression := range []string{"request.verb in ['get']", "user.extra['a'][0] == 'b'", "cluster.labels[?'x'].orValue('') == 'y'", "now.getHours('Asia/Tokyo') < 3",
		"request.path.matches('^(a+)+$')", "has(request.name)", "dyn(request).name == ''", "", "\x00", "request.name.split('/').all(x, x.size() < 9)"} {
		f.Add(expression, "get", "/api/v1/pods", "jane")
	}
	f.Fuzz(func(t *testing.T, expression, verb, path, name string) {
		set := setOf(policyOf("p", v1alpha1.ModeEnforce, expression))
		r := &Request{User: &user.DefaultInfo{Name: name, Groups: []string{verb}}, Verb: verb, Path: path, Name: name, Resource: path, Now: monday, Cluster: Cluster{Name: name, Labels: map[string]string{verb: path}}}
		whole := refusalOf(set, r)
		if _, _, err := compile(expression); err != nil && (whole == nil || whole.Reason != Failed) {
			t.Fatalf("%q does not compile (%v), and has %+v", expression, err, whole)
		}
		if again := refusalOf(set, r); (again == nil) != (whole == nil) {
			t.Fatalf("%q decides in two ways", expression)
		}
		for _, sight := range []Sight{NoObjects, Nothing} {
			less, other := *r, *r
			less.Sight, other.Sight = sight, sight
			other.Path, other.Name, other.Resource, other.Namespace = "other", "other", "other", "other"
			if sight == Nothing {
				other.Verb = "other"
			}
			other.User = r.User
			if (refusalOf(set, &less) == nil) != (refusalOf(set, &other) == nil) {
				t.Fatalf("%q reads what is hidden", expression)
			}
		}
	})
}
