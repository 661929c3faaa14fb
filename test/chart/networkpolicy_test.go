package chart

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// allowed are who may talk over a port, by the label that names them; "*" is
// anybody.
func allowed(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, into map[int32][]string) {
	for _, port := range ports {
		number := port.Port.IntVal
		if len(peers) == 0 {
			into[number] = append(into[number], "*")
		}
		for _, peer := range peers {
			for _, selector := range []map[string]string{labelsOf(peer.PodSelector != nil, peer), labelsOf(false, peer)} {
				for key, value := range selector {
					into[number] = append(into[number], key[strings.LastIndexByte(key, '/')+1:]+"="+value)
				}
			}
		}
		slices.Sort(into[number])
		into[number] = slices.Compact(into[number])
	}
}

func labelsOf(pods bool, peer networkingv1.NetworkPolicyPeer) map[string]string {
	switch {
	case pods:
		return peer.PodSelector.MatchLabels
	case peer.NamespaceSelector != nil:
		return peer.NamespaceSelector.MatchLabels
	}
	return nil
}

func TestNetworkPoliciesNameTheirPeers(t *testing.T) {
	rendered := mustRender(t, everything)
	for name, test := range map[string]struct {
		in  map[int32][]string
		out map[int32]string // of what is not everybody's
	}{
		"cluster-proxy-addon-manager-network-policy": {in: map[int32][]string{58080: {"c=d"}}, out: map[int32]string{8090: "component-name=proxy-server"}},
		"cluster-proxy-addon-user-network-policy": {
			in:  map[int32][]string{9092: {"*"}, 8000: {"c=d"}, 9093: {"component=cluster-proxy-addon-user"}},
			out: map[int32]string{8090: "component-name=proxy-server", 9093: "addon=cluster-proxy component=cluster-proxy-addon-user", 9094: "addon=cluster-proxy component=cluster-proxy-fleet-index"},
		},
		"cluster-proxy-fleet-index-network-policy": {
			in:  map[int32][]string{9094: {"component=cluster-proxy-addon-user"}, 8000: {"c=d"}},
			out: map[int32]string{8090: "component-name=proxy-server", 5433: "e=f"},
		},
		"cluster-proxy-proxy-server-network-policy": {
			in:  map[int32][]string{8091: {"*"}, 8092: {"c=d"}, 8090: {"a=b", "component-name=proxy-server", "component=cluster-proxy-fleet-index"}},
			out: map[int32]string{8090: "component-name=proxy-server"},
		},
	} {
		policy := as[networkingv1.NetworkPolicy](t, rendered.byName["NetworkPolicy/"+name])
		if !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
			t.Errorf("%s is about %v only, want Ingress and Egress", name, policy.Spec.PolicyTypes)
		}
		in, out := map[int32][]string{}, map[int32][]string{}
		for _, rule := range policy.Spec.Ingress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s lets somebody in on every port", name)
			}
			allowed(rule.Ports, rule.From, in)
		}
		for _, rule := range policy.Spec.Egress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s lets its pods out on every port", name)
			}
			allowed(rule.Ports, rule.To, out)
		}
		for port, peers := range in {
			for _, want := range test.in[port] {
				if !slices.Contains(peers, want) {
					t.Errorf("%s: port %d is open to %v, not to %s", name, port, peers, want)
				}
			}
			if len(test.in[port]) == 0 || slices.Contains(peers, "*") != slices.Contains(test.in[port], "*") {
				t.Errorf("%s: port %d is open to %v, want %v", name, port, peers, test.in[port])
			}
		}
		for port := range test.in {
			if len(in[port]) == 0 {
				t.Errorf("%s: port %d is open to nobody", name, port)
			}
		}
		for port, peers := range out {
			if slices.Contains([]int32{53, 5353, 443, 6443, 1, 2}, port) { // the last two are proxyConfig's
				continue
			}
			if want := test.out[port]; want == "" || strings.Join(peers, " ") != want {
				t.Errorf("%s: its pods may dial port %d of %v", name, port, peers)
			}
		}
	}
}

// TestNetworkPoliciesLetPodsToHTTPProxies puts an HTTP proxy before the hub's kube-apiserver.
func TestNetworkPoliciesLetPodsToHTTPProxies(t *testing.T) {
	for _, tc := range []struct {
		values string
		want   []int32
	}{
		{"httpProxy: 'http://p:3128', httpsProxy: 'http://p:3128'", []int32{3128}},
		{"httpProxy: 'http://u:p@[2001:db8::1]:3128/', httpsProxy: '10.0.0.1:3129'", []int32{3128, 3129}},
		{"httpProxy: 'p', httpsProxy: 'https://p'", []int32{80, 443}},
	} {
		rendered := mustRender(t, "{networkPolicies: {enabled: true}, proxyConfig: {"+tc.values+"}}")
		for _, name := range []string{"addon-manager", "addon-user", "proxy-server"} {
			policy := as[networkingv1.NetworkPolicy](t, rendered.byName["NetworkPolicy/cluster-proxy-"+name+"-network-policy"])
			out := map[int32][]string{}
			for _, rule := range policy.Spec.Egress {
				allowed(rule.Ports, rule.To, out)
			}
			for _, port := range tc.want {
				if !slices.Contains(out[port], "*") {
					t.Errorf("%s: %s may not dial port %d", tc.values, name, port)
				}
			}
		}
	}
}
