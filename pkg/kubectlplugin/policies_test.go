package kubectlplugin

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

func TestPoliciesCommand(t *testing.T) {
	policy := func(name string, compiled metav1.ConditionStatus, spec v1alpha1.AccessPolicySpec) v1alpha1.AccessPolicy {
		p := v1alpha1.AccessPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}, Spec: spec}
		p.Spec.Rules = []v1alpha1.AccessPolicyRule{{Name: "read-only", Expression: "true"}, {Name: "no-secrets", Expression: "true"}}
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTypeAccessPolicyCompiled, Status: compiled, Message: "it refuses\x1b[31m"}}
		return p
	}
	agents := policy("agents", metav1.ConditionTrue, v1alpha1.AccessPolicySpec{Clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"prod"}, Names: []string{"c1"}},
		Subjects: []v1alpha1.AccessPolicySubject{{Kind: "Group", Name: "ai-agents"}, {Kind: "ServiceAccount", Namespace: "ci", Name: "robot"}}})
	broken := policy("broken", metav1.ConditionFalse, v1alpha1.AccessPolicySpec{Mode: v1alpha1.ModeWarn})
	table := "NAME     MODE      SUBJECTS                                  CLUSTERS      COMPILED\nagents   Enforce   Group ai-agents,ServiceAccount ci/robot   set prod,c1   True\n"
	for name, tc := range map[string]struct {
		found   []v1alpha1.AccessPolicy
		code    int
		args    []string
		out     string
		errOut  string
		err     string
		notGood bool
	}{
		"one":     {found: []v1alpha1.AccessPolicy{agents}, out: table},
		"named":   {found: []v1alpha1.AccessPolicy{agents, broken}, args: []string{"agents"}, out: table},
		"names":   {found: []v1alpha1.AccessPolicy{agents}, args: []string{"-o", "name"}, out: "accesspolicy.proxy.open-cluster-management.io/agents\n"},
		"fields":  {found: []v1alpha1.AccessPolicy{agents}, args: []string{"-o", "jsonpath={.items[*].kind}"}, out: "AccessPolicy"},
		"broken":  {found: []v1alpha1.AccessPolicy{broken}, notGood: true, out: "NAME     MODE   SUBJECTS      CLUSTERS   COMPILED\nbroken   Warn   <everybody>   <all>      False\n", errOut: "policy broken: it refuses"},
		"none":    {errOut: "There is no policy.\n"},
		"unknown": {found: []v1alpha1.AccessPolicy{agents}, args: []string{"nope"}, err: `no policy "nope"`},
		"no CRD":  {code: http.StatusNotFound, err: "the CRD accesspolicies.proxy.open-cluster-management.io is not installed"},
		"refused": {code: http.StatusForbidden, err: "listing policies: not for ann"},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := clitest.FakeHubWith(t, func(serve func(path string, code int, object any)) {
				if tc.code != 0 {
					serve(policiesPath, tc.code, clitest.StatusOf(int32(tc.code), metav1.StatusReason(http.StatusText(tc.code)), "", "not for ann"))
					return
				}
				serve(policiesPath, 200, v1alpha1.AccessPolicyList{Items: tc.found})
			})
			out, errOut, err := run(t, kubeconfig, append([]string{"policies"}, tc.args...)...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if errors.Is(err, cli.ErrNotGood) != tc.notGood || err != nil && !tc.notGood {
				t.Errorf("error %v, want errNotGood: %v", err, tc.notGood)
			}
			if diff := cmp.Diff(tc.out, out); diff != "" || !strings.Contains(errOut, tc.errOut) || strings.Contains(errOut, "\x1b") {
				t.Errorf("output (-want +got):\n%s\nstandard error %q, want %q in it", diff, errOut, tc.errOut)
			}
		})
	}
	kubeconfig := clitest.FakeHubWith(t, func(serve func(path string, code int, object any)) {
		serve(policiesPath, 200, v1alpha1.AccessPolicyList{Items: []v1alpha1.AccessPolicy{agents, broken}})
	})
	if out, errOut, err := run(t, kubeconfig, "__completeNoDesc", "policies", "agents", ""); err != nil || out != "broken\n:4\n" {
		t.Errorf("completion: %q, %q, %v", out, errOut, err)
	}
}
