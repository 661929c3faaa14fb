package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestAgentComesAndGoes takes the agent of one cluster away and gives it back.
// While it is away the answer is 503, which kubectl understands, the other cluster
// does not notice, and afterwards everything works again by itself. It disturbs
// one cluster, whose agents stop for a while.
func TestAgentComesAndGoes(t *testing.T) {
	releaseOnNodes(t)
	installed.NeedLab(t, "takes the power from a cluster's agents")
	if len(installed.Clusters) < 2 {
		t.Skip("needs two managed clusters")
	}
	away, other := installed.Clusters[1], installed.Clusters[0]
	installed.StopAgents(t, away)
	wantAwayByKubectl(t, away)
	if err := installed.Reachable(t.Context(), other); err != nil {
		t.Errorf("%s suffers from what happened to %s: %v", other, away, err)
	}
	installed.StartAgents(t, away)
	suite.Eventually(t, away+" reachable again", func() error { return installed.Reachable(t.Context(), away) })
	suite.Eventually(t, away+" Available", func() error { return installed.AddonAvailable(t.Context(), away) })
}

// TestProxyServerRestart kills every proxy server; agents and the proxy API come
// back by themselves. It disturbs all clusters: every tunnel breaks once.
func TestProxyServerRestart(t *testing.T) {
	k := installed.Kind(t, installed.Clusters[0], "proxy server")
	pods, err := k.Pods(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d proxy server pods, %v, want some", len(pods), err)
	}
	for _, pod := range pods {
		if err := k.Client.CoreV1().Pods(k.Namespace).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
			t.Fatal(err)
		}
	}
	installed.AwaitOtherPods(t.Context(), t, k, pods)
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable again", func() error { return installed.Reachable(t.Context(), cluster) })
	}
}

// TestAddonDeletion removes the addon from one cluster: everything it had put
// there goes, and because the placement still selects the cluster, it returns. It
// disturbs one cluster, which has no agent for a while.
func TestAddonDeletion(t *testing.T) {
	long.Test(t)
	cluster := installed.Clusters[len(installed.Clusters)-1]
	before, err := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	managed := suite.Clientset(t, installed.Direct(cluster))
	deployment, err := managed.AppsV1().Deployments(installed.AgentNamespace).Get(t.Context(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Delete(t.Context(), identity.AddonName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, "the old agent gone from "+cluster, func() error {
		now, err := managed.AppsV1().Deployments(installed.AgentNamespace).Get(t.Context(), deployment.Name, metav1.GetOptions{})
		if err == nil && now.UID == deployment.UID {
			return fmt.Errorf("deployment %q is still there", deployment.Name)
		}
		return nil
	})
	suite.Eventually(t, "a new addon on "+cluster, func() error {
		now, err := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID == before.UID {
			return fmt.Errorf("the old addon is still there")
		}
		return nil
	})
	suite.Eventually(t, cluster+" Available", func() error { return installed.AddonAvailable(t.Context(), cluster) })
	suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
}

// TestLoadBalancerEntrypoint gives a load balancer two addresses, one after the
// other. It disturbs all clusters: their agents are replaced, and back.
func TestLoadBalancerEntrypoint(t *testing.T) {
	long.Test(t)
	if err := installed.PatchConfiguration(t, `{"spec":{"proxyServer":{"entrypoint":{"type":"LoadBalancerService","hostname":null,"loadBalancerService":{"name":"e2e-lb"}}}}}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = installed.Hub.CoreV1().Services(installed.Namespace).Delete(context.Background(), "e2e-lb", metav1.DeleteOptions{})
	})
	services := installed.Hub.CoreV1().Services(installed.Namespace)
	for _, ingress := range []struct{ kind, value string }{{"ip", "192.0.2.10"}, {"hostname", "lb.example.com"}} {
		suite.Eventually(t, "agents told of "+ingress.value, func() error {
			svc, err := services.Get(t.Context(), "e2e-lb", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(svc.Spec.Ports) != 1 {
				t.Errorf("the load balancer exposes %d ports, want the agent port alone", len(svc.Spec.Ports))
			}
			// Each time: a lab with nodes has a controller that gives an address too.
			_, err = services.Patch(t.Context(), "e2e-lb", types.MergePatchType,
				fmt.Appendf(nil, `{"status":{"loadBalancer":{"ingress":[{%q:%q}]}}}`, ingress.kind, ingress.value), metav1.PatchOptions{}, "status")
			if err != nil {
				return err
			}
			work, err := installed.DeployWork(t.Context(), installed.Clusters[0])
			if err != nil {
				return err
			}
			if want := "--proxy-server-host=" + ingress.value; !strings.Contains(work, want) {
				return fmt.Errorf("the work does not hold %q", want)
			}
			return nil
		})
	}
}

// TestBadConfigurationChangesNothing sends invalid configurations. The answer names
// the field and what is allowed, and the addon keeps working. It
// disturbs nothing: what it sends is refused.
func TestBadConfigurationChangesNothing(t *testing.T) {
	for name, test := range map[string]struct{ patch, want string }{
		"hostname without value": {`{"spec":{"proxyServer":{"entrypoint":{"type":"Hostname","hostname":null}}}}`, "hostname"},
		"unknown entrypoint":     {`{"spec":{"proxyServer":{"entrypoint":{"type":"Pigeon"}}}}`, "entrypoint.type"},
		"port out of range":      {`{"spec":{"proxyServer":{"entrypoint":{"port":70000}}}}`, "port"},
	} {
		t.Run(name, func(t *testing.T) {
			err := installed.PatchConfiguration(t, test.patch)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a refusal that names %q", err, test.want)
			}
			for _, cluster := range installed.Clusters {
				if err := installed.Reachable(t.Context(), cluster); err != nil {
					t.Errorf("%s is not reachable any more: %v", cluster, err)
				}
			}
		})
	}
}
