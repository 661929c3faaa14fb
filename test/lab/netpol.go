package lab

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// policyState is what NetworkPolicies are about on a cluster of one node.
type policyState struct {
	policies   []*networkingv1.NetworkPolicy
	pods       []*corev1.Pod
	namespaces map[string]labels.Set
}

// rules are the NetworkPolicies as an nft table: the lab's CNI plugin does not
// know them. Traffic between a pod and its own node always passes, as the
// kubelet's probes must.
func (s policyState) rules() (string, error) {
	var chains, jumps strings.Builder
	for i, pod := range s.pods {
		if pod.Status.PodIP == "" || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
			accepts, selected, err := s.accepts(pod, direction)
			if err != nil {
				return "", err
			}
			if !selected {
				continue
			}
			chain, own := fmt.Sprintf("%s%d", strings.ToLower(string(direction)), i), "daddr"
			if direction == networkingv1.PolicyTypeEgress {
				own = "saddr"
			}
			fmt.Fprintf(&jumps, "\t\tip %s %s jump %s\n", own, pod.Status.PodIP, chain)
			fmt.Fprintf(&chains, "\tchain %s { # %s/%s\n%s\t\tcounter drop\n\t}\n", chain, pod.Namespace, pod.Name, strings.Join(accepts, ""))
		}
	}
	return "add table inet networkpolicies\ndelete table inet networkpolicies\ntable inet networkpolicies {\n" + chains.String() +
		"\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\tct state established,related accept\n" + jumps.String() + "\t}\n}\n", nil
}

// accepts are the rules that let traffic of one direction through for a pod;
// selected says whether any policy is about it at all.
func (s policyState) accepts(pod *corev1.Pod, direction networkingv1.PolicyType) (accepts []string, selected bool, err error) {
	for _, policy := range s.policies {
		if policy.Namespace != pod.Namespace || !slices.Contains(policy.Spec.PolicyTypes, direction) || !matches(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		selected = true
		peer := "saddr"
		var rules []networkingv1.NetworkPolicyIngressRule
		rules = append(rules, policy.Spec.Ingress...)
		if direction == networkingv1.PolicyTypeEgress {
			peer, rules = "daddr", nil
			for _, rule := range policy.Spec.Egress {
				rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: rule.Ports, From: rule.To})
			}
		}
		for _, rule := range rules {
			more, err := s.rule(policy.Namespace, peer, rule)
			if err != nil {
				return nil, false, fmt.Errorf("NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
			accepts = append(accepts, more...)
		}
	}
	return accepts, selected, nil
}

func (s policyState) rule(namespace, side string, rule networkingv1.NetworkPolicyIngressRule) ([]string, error) {
	from := ""
	if len(rule.From) > 0 {
		var addresses []string
		for _, peer := range rule.From {
			addresses = append(addresses, s.peers(namespace, peer)...)
		}
		if len(addresses) == 0 {
			return nil, nil
		}
		slices.Sort(addresses)
		from = fmt.Sprintf("ip %s { %s } ", side, strings.Join(slices.Compact(addresses), ", "))
	}
	if len(rule.Ports) == 0 {
		return []string{"\t\t" + from + "accept\n"}, nil
	}
	var out []string
	for _, port := range rule.Ports {
		protocol := "tcp"
		if port.Protocol != nil {
			protocol = strings.ToLower(string(*port.Protocol))
		}
		if port.Port == nil || port.Port.StrVal != "" || port.EndPort != nil {
			return nil, fmt.Errorf("the lab knows single ports by number only, not %+v", port)
		}
		out = append(out, fmt.Sprintf("\t\t%s%s dport %d accept\n", from, protocol, port.Port.IntVal))
	}
	return out, nil
}

// peers are the addresses that a peer stands for.
func (s policyState) peers(namespace string, peer networkingv1.NetworkPolicyPeer) []string {
	if peer.IPBlock != nil {
		return []string{peer.IPBlock.CIDR}
	}
	var out []string
	for _, pod := range s.pods {
		inNamespace := pod.Namespace == namespace
		if peer.NamespaceSelector != nil {
			inNamespace = matches(peer.NamespaceSelector, s.namespaces[pod.Namespace])
		}
		if inNamespace && pod.Status.PodIP != "" && !pod.Spec.HostNetwork && (peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)) {
			out = append(out, pod.Status.PodIP)
		}
	}
	return out
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}
