package chart

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const portForwardPolicy = "cluster-proxy-agents-port-forward"

// pattern is the regular expression in an expression of a policy. CEL's are RE2,
// as Go's are.
func pattern(t *testing.T, expression string) *regexp.Regexp {
	t.Helper()
	match := regexp.MustCompile(`\.matches\('([^']+)'\)`).FindStringSubmatch(expression)
	if match == nil {
		t.Fatalf("%q matches nothing", expression)
	}
	return regexp.MustCompile(match[1])
}

// TestPortForwardPolicy reads what the policy says; TestAgentsPortForwardToProxyServersOnly
// asks a kube-apiserver what it does.
func TestPortForwardPolicy(t *testing.T) {
	rendered := mustRender(t, "")
	policy := as[admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered.byName["ValidatingAdmissionPolicy/"+portForwardPolicy])
	binding := as[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, rendered.byName["ValidatingAdmissionPolicyBinding/"+portForwardPolicy])
	if *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || binding.Spec.PolicyName != policy.Name ||
		!slices.Equal(binding.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
		t.Errorf("what the policy refuses is let through: %+v, %+v", policy.Spec, binding.Spec)
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": namespace}, policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if len(policy.Spec.MatchConditions) != 1 || len(policy.Spec.Validations) != 2 {
		t.Fatalf("the policy has %d conditions and %d validations, want 1 and 2", len(policy.Spec.MatchConditions), len(policy.Spec.Validations))
	}
	groups := pattern(t, policy.Spec.MatchConditions[0].Expression)
	for _, group := range append(identity.AgentOrganizations("cluster1"), identity.AgentGroup("a.b-c"), identity.Organization) {
		if !groups.MatchString(group) {
			t.Errorf("the policy is not about group %q", group)
		}
	}
	for _, group := range []string{"system:masters", "system:authenticated", "system:open-cluster-management:cluster1", "system:open-cluster-management:cluster:cluster1:addon:cluster-proxy2", "x" + identity.Organization} {
		if groups.MatchString(group) {
			t.Errorf("the policy is about group %q", group)
		}
	}
	_, account, ok := strings.Cut(policy.Spec.MatchConditions[0].Expression, "|| request.userInfo.username")
	if !ok {
		t.Fatalf("the policy is not about accounts: %s", policy.Spec.MatchConditions[0].Expression)
	}
	accounts := pattern(t, account)
	for name, want := range map[string]bool{
		"system:serviceaccount:cluster1:cluster-proxy-agent": true, "system:serviceaccount:2nd-cluster:cluster-proxy-agent": true,
		"system:serviceaccount:cluster1:cluster-proxy-agent2": false, "system:serviceaccount:a:b:cluster-proxy-agent": false, "cluster-proxy-agent": false,
	} {
		if accounts.MatchString(name) != want {
			t.Errorf("the policy is about user %q: %v, want %v", name, !want, want)
		}
	}
	pods := pattern(t, policy.Spec.Validations[0].Expression)
	configuration := rendered.byName["ManagedProxyConfiguration/cluster-proxy"].GetName() // and that of its Deployment
	for _, pod := range []string{configuration + "-7c9d8f5b6-x2x4z", configuration + "-54b6c7-b5v7q"} {
		if !pods.MatchString(pod) {
			t.Errorf("agents cannot reach proxy server %q", pod)
		}
	}
	others := []string{configuration + "-test", configuration, "x-" + configuration + "-7c9d8f5b6-x2x4z", configuration + "-7c9d8f5b6-x2x4z-0", "etcd-0"}
	for _, deployment := range rendered.deployments(t) {
		others = append(others, deployment.Name+"-7c9d8f5b6-x2x4z")
	}
	for _, pod := range others {
		if pods.MatchString(pod) {
			t.Errorf("agents reach pod %q", pod)
		}
	}
}

// TestPortForwardPolicyNeedsTheHub wants the chart to install on hubs without
// such policies, and to say what is missing there.
func TestPortForwardPolicyNeedsTheHub(t *testing.T) {
	for version, want := range map[string]bool{"v1.29.15+k3s1": false, "v1.30.0": true, "v1.31.4-gke.1": true} {
		rendered, err := renderFor(t, load(t), "", version)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"ValidatingAdmissionPolicy/", "ValidatingAdmissionPolicyBinding/"} {
			if got := rendered.byName[kind+portForwardPolicy] != nil; got != want {
				t.Errorf("%s: %s%s is made: %v, want %v", version, kind, portForwardPolicy, got, want)
			}
		}
		if got := !strings.Contains(rendered.notes, "every pod there"); got != want {
			t.Errorf("%s: NOTES.txt says the wrong thing:\n%s", version, rendered.notes)
		}
	}
}
