package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func addonAvailable(ctx context.Context, cluster string) error {
	addon, err := suite.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, identity.AddonName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range addon.Status.Conditions {
		if c.Type == addonv1alpha1.ManagedClusterAddOnConditionAvailable {
			if c.Status == metav1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("condition Available is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return fmt.Errorf("condition Available is not set yet")
}

func reachable(ctx context.Context, cluster string) error {
	cs, err := kubernetes.NewForConfig(suite.throughProxyAPI(cluster))
	if err != nil {
		return err
	}
	_, err = cs.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// deployWorkName is the agent's ManifestWork in the namespace of each cluster.
const deployWorkName = "addon-" + identity.AddonName + "-deploy-0"

// deployWork is the agent's ManifestWork of a cluster as text.
func deployWork(ctx context.Context, cluster string) (string, error) {
	work, err := suite.works.WorkV1().ManifestWorks(cluster).Get(ctx, deployWorkName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(work.Spec)
	return string(raw), err
}

// awaitPods waits until a cluster and the hub have the pods that they are to have, and
// nothing else runs: what a test before took away or replaced ends the connections
// of its last seconds when its time to drain is over.
func awaitPods(t *testing.T, cluster string) {
	t.Helper()
	managed := clientset(t, suite.direct(cluster))
	for _, c := range []struct {
		name        string
		deployments appsv1client.DeploymentInterface
	}{
		{suite.lab.Hub.Name, suite.hub.AppsV1().Deployments(suite.namespace)},
		{cluster, managed.AppsV1().Deployments(suite.agentNamespace)},
	} {
		eventually(t, c.name+" without pods of before", func() error {
			list, err := c.deployments.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if err := rolledOut(&list.Items[i]); err != nil {
					return err
				}
			}
			return suite.lab.PodsEnded(t.Context(), c.name)
		})
	}
	eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
}

// TestAgentComesAndGoes takes the agent of one cluster away and gives it back.
// While it is away the answer is 503 with a time to come back, the other
// cluster does not notice, and afterwards everything works again by itself.
func TestAgentComesAndGoes(t *testing.T) {
	if len(suite.clusters) < 2 {
		t.Skip("needs two managed clusters")
	}
	away, other := suite.clusters[1], suite.clusters[0]
	suite.stopAgents(t, away)
	eventually(t, "503 for "+away, func() error {
		cfg := suite.throughProxyAPI(away)
		cfg.BearerToken = suite.hubToken
		resp, s, err := tryStatus(t.Context(), cfg, "/version")
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusServiceUnavailable {
			return fmt.Errorf("answered %d: %s", resp.StatusCode, s.Message)
		}
		if resp.Header.Get("Retry-After") == "" || !strings.Contains(s.Message, away) {
			return fmt.Errorf("503 without Retry-After or without the cluster's name: %q", s.Message)
		}
		return nil
	})
	if err := reachable(t.Context(), other); err != nil {
		t.Errorf("%s suffers from what happened to %s: %v", other, away, err)
	}
	suite.startAgents(t, away)
	eventually(t, away+" reachable again", func() error { return reachable(t.Context(), away) })
	eventually(t, away+" Available", func() error { return addonAvailable(t.Context(), away) })
}

// TestProxyServerRestart kills every proxy server; agents and the proxy API
// come back by themselves.
func TestProxyServerRestart(t *testing.T) {
	pods, err := suite.hub.CoreV1().Pods(suite.namespace).List(t.Context(), proxyServers)
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d proxy server pods, %v", len(pods.Items), err)
	}
	for _, pod := range pods.Items {
		if err := suite.hub.CoreV1().Pods(suite.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "other proxy servers", func() error {
		now, err := suite.hub.CoreV1().Pods(suite.namespace).List(t.Context(), proxyServers)
		if err != nil {
			return err
		}
		for _, pod := range now.Items {
			for _, old := range pods.Items {
				if pod.UID == old.UID {
					return fmt.Errorf("pod %q is still there", pod.Name)
				}
			}
		}
		if len(now.Items) != len(pods.Items) {
			return fmt.Errorf("%d proxy servers, want %d", len(now.Items), len(pods.Items))
		}
		return nil
	})
	for _, cluster := range suite.clusters {
		eventually(t, cluster+" reachable again", func() error { return reachable(t.Context(), cluster) })
	}
}

var proxyServers = metav1.ListOptions{LabelSelector: "proxy.open-cluster-management.io/component-name=proxy-server"}

// TestAddonDeletion removes the addon from one cluster: everything it had put
// there goes, and because the placement still selects the cluster, it returns.
func TestAddonDeletion(t *testing.T) {
	cluster := suite.clusters[len(suite.clusters)-1]
	before, err := suite.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	managed := clientset(t, suite.direct(cluster))
	deployment, err := managed.AppsV1().Deployments(suite.agentNamespace).Get(t.Context(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Delete(t.Context(), identity.AddonName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old agent gone from "+cluster, func() error {
		now, err := managed.AppsV1().Deployments(suite.agentNamespace).Get(t.Context(), deployment.Name, metav1.GetOptions{})
		if err == nil && now.UID == deployment.UID {
			return fmt.Errorf("deployment %q is still there", deployment.Name)
		}
		return nil
	})
	eventually(t, "a new addon on "+cluster, func() error {
		now, err := suite.addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID == before.UID {
			return fmt.Errorf("the old addon is still there")
		}
		return nil
	})
	eventually(t, cluster+" Available", func() error { return addonAvailable(t.Context(), cluster) })
	eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
}

// patchConfiguration merges a patch into the ManagedProxyConfiguration and puts
// back what was there when the test ends.
func patchConfiguration(t *testing.T, patch string) error {
	t.Helper()
	ctx := context.Background()
	before, err := suite.configuration.Get(ctx, identity.AddonName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the configuration put back", func() error {
			now, err := suite.configuration.Get(ctx, identity.AddonName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Object["spec"] = before.Object["spec"]
			_, err = suite.configuration.Update(ctx, now, metav1.UpdateOptions{})
			return err
		})
		for _, cluster := range suite.clusters {
			eventually(t, cluster+" reachable", func() error { return reachable(ctx, cluster) })
		}
	})
	_, err = suite.configuration.Patch(ctx, identity.AddonName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func TestEntrypointsReachTheManifestWork(t *testing.T) {
	cluster := suite.clusters[0]
	for _, test := range []struct {
		name, patch string
		want        []string
	}{
		{"hostname", `{"spec":{"proxyServer":{"entrypoint":{"type":"Hostname","hostname":{"value":"tunnel.example.com"},"port":8443,"loadBalancerService":null}}}}`,
			[]string{"--proxy-server-host=tunnel.example.com", "--proxy-server-port=8443"}},
		{"port forward", `{"spec":{"proxyServer":{"entrypoint":{"type":"PortForward","hostname":null}}}}`,
			[]string{"--proxy-server-host=127.0.0.1", "--enable-port-forward-proxy=true", "cluster-proxy-hub-kubeconfig"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := patchConfiguration(t, test.patch); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the ManifestWork to follow", func() error {
				work, err := deployWork(t.Context(), cluster)
				if err != nil {
					return err
				}
				for _, want := range test.want {
					if !strings.Contains(work, want) {
						return fmt.Errorf("the work does not hold %q", want)
					}
				}
				return nil
			})
		})
	}
}

func TestLoadBalancerEntrypoint(t *testing.T) {
	if err := patchConfiguration(t, `{"spec":{"proxyServer":{"entrypoint":{"type":"LoadBalancerService","hostname":null,"loadBalancerService":{"name":"e2e-lb"}}}}}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = suite.hub.CoreV1().Services(suite.namespace).Delete(context.Background(), "e2e-lb", metav1.DeleteOptions{})
	})
	services := suite.hub.CoreV1().Services(suite.namespace)
	for _, ingress := range []struct{ kind, value string }{{"ip", "192.0.2.10"}, {"hostname", "lb.example.com"}} {
		eventually(t, "agents told of "+ingress.value, func() error {
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
			work, err := deployWork(t.Context(), suite.clusters[0])
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

// TestBadConfigurationChangesNothing sends what nobody should send. The answer
// names the field and what is allowed, and what worked goes on working.
func TestBadConfigurationChangesNothing(t *testing.T) {
	for name, test := range map[string]struct{ patch, want string }{
		"hostname without value": {`{"spec":{"proxyServer":{"entrypoint":{"type":"Hostname","hostname":null}}}}`, "hostname"},
		"unknown entrypoint":     {`{"spec":{"proxyServer":{"entrypoint":{"type":"Pigeon"}}}}`, "entrypoint.type"},
		"port out of range":      {`{"spec":{"proxyServer":{"entrypoint":{"port":70000}}}}`, "port"},
	} {
		t.Run(name, func(t *testing.T) {
			err := patchConfiguration(t, test.patch)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a refusal that names %q", err, test.want)
			}
			for _, cluster := range suite.clusters {
				if err := reachable(t.Context(), cluster); err != nil {
					t.Errorf("%s: %v", cluster, err)
				}
			}
		})
	}
}
