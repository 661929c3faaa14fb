package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestAgentsPortForwardToProxyServersOnly uses what an agent has as a credential
// of the hub in PortForward mode: its name and groups. The role lets it
// port-forward to every pod of the namespace; the chart's admission policy does
// not. It disturbs all clusters: their agents are replaced, and back.
func TestAgentsPortForwardToProxyServersOnly(t *testing.T) {
	long.Test(t)
	cluster := installed.Clusters[0]
	if err := installed.PatchConfiguration(t, `{"spec":{"proxyServer":{"entrypoint":{"type":"PortForward","hostname":null,"loadBalancerService":null}}}}`); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, "the agents' rights", func() error {
		binding, err := installed.Hub.RbacV1().RoleBindings(installed.Namespace).Get(t.Context(), "cluster-proxy-addon-agent:portforward", metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == identity.AgentGroup(cluster) }) {
			err = fmt.Errorf("subjects are %v", binding.Subjects)
		}
		return err
	})
	admin := installed.HubConfig()
	agent := func(groups ...string) *rest.Config {
		as := rest.CopyConfig(admin)
		as.Impersonate = rest.ImpersonationConfig{UserName: identity.AgentCommonName(cluster), Groups: groups}
		return as
	}
	complete := agent(append(identity.AgentOrganizations(cluster), identity.Organization, "system:authenticated")...)
	reached := 0
	installed.Settle(t)
	for _, k := range installed.Kinds(t, cluster) {
		if k.Client != installed.Hub {
			continue
		}
		pods, err := k.Pods(t.Context())
		if err != nil || len(pods) == 0 {
			t.Fatalf("%d pods of the %s, %v, want some", len(pods), k.Name, err)
		}
		pod, mine := pods[0], k.Name == "proxy server"
		if mine {
			reached++
		}
		for _, test := range []struct {
			name, query string
			as          *rest.Config
			allowed     bool
		}{
			{"an agent", "", complete, mine},
			{"an agent with the group of the role alone", "", agent(identity.AgentGroup(cluster)), mine},
			{"an agent, agent port", "ports=8091", complete, mine},
			{"an agent, admin port", "ports=8095", complete, false},
			{"an agent, agent port and another", "ports=8091&ports=8092", complete, false},
			{"an administrator", "ports=8095", admin, true},
		} {
			suite.Eventually(t, fmt.Sprintf("the answer for %s to a port-forward to %s", test.name, pod), func() error {
				err := portForward(test.as, pod, test.query)
				switch {
				case test.allowed:
					return err
				case err == nil:
					return fmt.Errorf("allowed")
				case !strings.Contains(err.Error(), "forbidden: ValidatingAdmissionPolicy 'cluster-proxy-agents-port-forward'"):
					return fmt.Errorf("%w, want the policy to forbid it", err)
				}
				return nil
			})
		}
	}
	if reached == 0 {
		t.Error("there is no proxy server")
	}
	for _, cluster := range installed.Clusters {
		installed.AgentsFollow(t, cluster, "--enable-port-forward-proxy=true")
		suite.WantPods(t, installed.ThroughProxyAPI(cluster))
	}
}

// portForward opens a port-forward to a pod of the hub's addon, as agents do, and
// closes it.
func portForward(as *rest.Config, pod, query string) error {
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		return err
	}
	url := client.CoreV1().RESTClient().Post().Namespace(installed.Namespace).Resource("pods").Name(pod).SubResource("portforward").URL()
	url.RawQuery = query
	transport, upgrader, err := spdy.RoundTripperFor(as)
	if err != nil {
		return err
	}
	tunnel, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return err
	}
	return tunnel.Close()
}
