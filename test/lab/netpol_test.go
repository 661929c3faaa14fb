package lab

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestNetworkPolicyRules(t *testing.T) {
	pod := func(name, address string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name}}, Status: corev1.PodStatus{PodIP: address}}
	}
	port := intstr.FromInt32(8090)
	only := func(app string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	client := only("client")
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: only("server"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{PodSelector: &client}}, Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
		}},
	}}
	state := policyState{
		policies: []*networkingv1.NetworkPolicy{policy}, pods: []*corev1.Pod{pod("server", "10.0.0.1"), pod("client", "10.0.0.2"), pod("other", "10.0.0.3")},
		namespaces: map[string]labels.Set{"ns": nil},
	}
	got, err := state.rules()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"chain ingress0 { # ns/server\n\t\tip saddr { 10.0.0.2 } tcp dport 8090 accept\n\t\tcounter drop\n",
		"chain egress0 { # ns/server\n\t\tcounter drop\n",
		"ip daddr 10.0.0.1 jump ingress0\n", "ip saddr 10.0.0.1 jump egress0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "10.0.0.3") {
		t.Errorf("a pod that no policy is about is in\n%s", got)
	}
	policy.Spec.Ingress[0].Ports[0].Port = &intstr.IntOrString{Type: intstr.String, StrVal: "name"}
	state.policies = []*networkingv1.NetworkPolicy{policy}
	if _, err := state.rules(); err == nil {
		t.Error("a named port, which the lab does not know, was let by")
	}
}
