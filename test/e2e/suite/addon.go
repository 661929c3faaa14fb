package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// AddonAvailable returns nil if the addon of a cluster is Available, or says why not.
func (s *Suite) AddonAvailable(ctx context.Context, cluster string) error {
	addon, err := s.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, identity.AddonName, metav1.GetOptions{})
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

// Reachable returns nil if a cluster answers through the proxy API.
func (s *Suite) Reachable(ctx context.Context, cluster string) error {
	cs, err := kubernetes.NewForConfig(s.ThroughProxyAPI(cluster))
	if err != nil {
		return err
	}
	_, err = cs.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// DeployWorkName is the agent's ManifestWork in the namespace of each cluster.
const DeployWorkName = "addon-" + identity.AddonName + "-deploy-0"

// DeployWork is the agent's ManifestWork of a cluster as text.
func (s *Suite) DeployWork(ctx context.Context, cluster string) (string, error) {
	work, err := s.Works.WorkV1().ManifestWorks(cluster).Get(ctx, DeployWorkName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(work.Spec)
	return string(raw), err
}

// AppliedWork returns the agent's ManifestWork of a cluster. It is an error while the
// cluster has not applied the work as it is now.
func (s *Suite) AppliedWork(ctx context.Context, cluster string) (*workv1.ManifestWork, error) {
	work, err := s.Works.WorkV1().ManifestWorks(cluster).Get(ctx, DeployWorkName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != work.Generation {
		return nil, fmt.Errorf("the ManifestWork is not applied: %v", applied)
	}
	return work, nil
}

// allRolledOut has an error while one of the Deployments is not rolled out.
func allRolledOut(ctx context.Context, deployments appsv1client.DeploymentInterface) error {
	list, err := deployments.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := RolledOut(&list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// AwaitPods waits until a cluster and the hub have the pods that they are to have, and
// nothing else runs: what a test before took away or replaced ends the connections
// of its last seconds when its time to drain is over.
func (s *Suite) AwaitPods(t *testing.T, cluster string) {
	t.Helper()
	managed := Clientset(t, s.Direct(cluster))
	for _, c := range []struct {
		name        string
		deployments appsv1client.DeploymentInterface
	}{
		{"hub", s.Hub.AppsV1().Deployments(s.Namespace)},
		{cluster, managed.AppsV1().Deployments(s.AgentNamespace)},
	} {
		Eventually(t, c.name+" without pods of before", func() error {
			if err := allRolledOut(t.Context(), c.deployments); err != nil {
				return err
			}
			return s.Lab.PodsEnded(t.Context(), c.name)
		})
	}
	Eventually(t, cluster+" reachable", func() error { return s.Reachable(t.Context(), cluster) })
}

// PatchConfiguration merges a patch into the ManagedProxyConfiguration and puts
// back what was there when the test ends.
func (s *Suite) PatchConfiguration(t *testing.T, patch string) error {
	t.Helper()
	ctx := context.Background()
	before, err := s.Configuration.Get(ctx, identity.AddonName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := utils.GetSpecHash(before)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		Eventually(t, "the configuration put back", func() error {
			now, err := s.Configuration.Get(ctx, identity.AddonName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Object["spec"] = before.Object["spec"]
			_, err = s.Configuration.Update(ctx, now, metav1.UpdateOptions{})
			return err
		})
		for _, cluster := range s.Clusters {
			Eventually(t, cluster+"'s agents as before", func() error { return s.settled(ctx, t, cluster, hash) })
			Eventually(t, cluster+" reachable", func() error { return s.Reachable(ctx, cluster) })
		}
	})
	_, err = s.Configuration.Patch(ctx, identity.AddonName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// settled has an error until OCM and the addon manager have seen that the configuration
// has this hash, and the cluster has applied what was made of it and replaced its
// agents. The next test would otherwise begin while they are replaced.
func (s *Suite) settled(ctx context.Context, t *testing.T, cluster, hash string) error {
	addon, err := s.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, identity.AddonName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, reference := range addon.Status.ConfigReferences {
		if reference.Resource == "managedproxyconfigurations" && (reference.DesiredConfig == nil || reference.DesiredConfig.SpecHash != hash) {
			return fmt.Errorf("the addon's configuration is %+v, want hash %s", reference.DesiredConfig, hash)
		}
	}
	work, err := s.AppliedWork(ctx, cluster)
	if err != nil {
		return err
	}
	if made := work.Annotations[workv1.ManifestConfigSpecHashAnnotationKey]; !strings.Contains(made, hash) {
		return fmt.Errorf("the ManifestWork was made with %s, want hash %s", made, hash)
	}
	return allRolledOut(ctx, Clientset(t, s.Direct(cluster)).AppsV1().Deployments(s.AgentNamespace))
}

// StopAgents takes the power from a cluster's agents; StartAgents gives it back. At the end
// of the test the cluster is reachable again, for the next one.
func (s *Suite) StopAgents(t *testing.T, cluster string) {
	t.Helper()
	if err := s.Lab.PausePods(cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.StartAgents(t, cluster)
		// The context of a test has ended by its cleanup.
		Eventually(t, cluster+" reachable again", func() error { return s.Reachable(context.Background(), cluster) })
	})
}

// StartAgents undoes StopAgents.
func (s *Suite) StartAgents(t *testing.T, cluster string) {
	t.Helper()
	if err := s.Lab.ResumePods(cluster); err != nil {
		t.Fatal(err)
	}
}

// AgentsFollow waits until a cluster's agents all run with an argument and are
// ready, and the cluster is reachable.
func (s *Suite) AgentsFollow(t *testing.T, cluster, argument string) {
	t.Helper()
	s.awaitAgents(t, cluster, argument, func(agent corev1.Container) bool { return strings.Contains(fmt.Sprint(agent.Args), argument) })
	Eventually(t, cluster+" reachable", func() error { return s.Reachable(t.Context(), cluster) })
}

// AgentsHaveImage waits until a cluster's agents all run an image and are ready.
func (s *Suite) AgentsHaveImage(t *testing.T, cluster, suffix string) {
	t.Helper()
	s.awaitAgents(t, cluster, suffix, func(agent corev1.Container) bool { return strings.HasSuffix(agent.Image, suffix) })
}

func (s *Suite) awaitAgents(t *testing.T, cluster, with string, is func(corev1.Container) bool) {
	t.Helper()
	managed := Clientset(t, s.Direct(cluster))
	Eventually(t, cluster+"'s agents with "+with, func() error {
		deployment, err := managed.AppsV1().Deployments(s.AgentNamespace).Get(context.Background(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if agent := deployment.Spec.Template.Spec.Containers[0]; !is(agent) {
			return fmt.Errorf("image %s, arguments %s", agent.Image, agent.Args)
		}
		return RolledOut(deployment)
	})
}

// Gone says what of the addon is still on a cluster, and nil when nothing is.
func (s *Suite) Gone(cluster string) error {
	ctx := context.Background()
	if _, err := s.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(ctx, identity.AddonName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the ManagedClusterAddOn is there: %v", err)
	}
	cs, err := kubernetes.NewForConfig(s.Direct(cluster))
	if err != nil {
		return err
	}
	pods, err := cs.CoreV1().Pods(s.AgentNamespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(pods.Items) > 0 {
		err = fmt.Errorf("%d pods are there", len(pods.Items))
	}
	return err
}

// Uninstall removes the chart and waits until nothing of the addon is left on any
// cluster.
func (s *Suite) Uninstall(t *testing.T) {
	t.Helper()
	ctx := context.Background() // a cleanup may call it
	if err := s.Lab.Helm(ctx, "uninstall", "cluster-proxy", "--kubeconfig="+s.HubKubeconfig, "--namespace="+s.Namespace, "--wait", "--ignore-not-found"); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range s.Clusters {
		Eventually(t, "nothing left on "+cluster, func() error { return s.Gone(cluster) })
	}
}

// Reinstall installs the chart again and waits until everything works.
func (s *Suite) Reinstall(t *testing.T) {
	t.Helper()
	ctx := context.Background() // a cleanup may call it
	if err := s.Lab.InstallChart(ctx, "cluster-proxy", s.Namespace, "../../charts/cluster-proxy", s.ChartValues()...); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range s.Clusters {
		Eventually(t, cluster+" Available", func() error { return s.AddonAvailable(ctx, cluster) })
	}
	if err := s.FindEndpoints(ctx); err != nil {
		t.Fatal(err)
	}
	s.Settle(t)
	for _, cluster := range s.Clusters {
		Eventually(t, cluster+" reachable", func() error { return s.Reachable(ctx, cluster) })
	}
}

// Kind is a kind of the addon's pods.
type Kind struct {
	Name       string
	Client     *kubernetes.Clientset
	Namespace  string
	deployment string
}

// Kinds are those of the hub and of one cluster.
func (s *Suite) Kinds(t *testing.T, cluster string) []Kind {
	return []Kind{
		{"addon manager", s.Hub, s.Namespace, "cluster-proxy-addon-manager"},
		{"proxy server", s.Hub, s.Namespace, "cluster-proxy"},
		{"proxy API", s.Hub, s.Namespace, "cluster-proxy-addon-user"},
		{"proxy agent", Clientset(t, s.Direct(cluster)), s.AgentNamespace, "cluster-proxy-proxy-agent"},
	}
}

// Pods are the names of those that are not on their way out.
func (k Kind) Pods(ctx context.Context) ([]string, error) {
	deployment, err := k.Client.AppsV1().Deployments(k.Namespace).Get(ctx, k.deployment, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, err
	}
	pods, err := k.Client.CoreV1().Pods(k.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names, nil
}

// Kill ends a pod's process, without a word, and the pod: the kubelet alone would ask the
// process first, and give it two seconds at least. The process is frozen while the pod is
// deleted: else it could be started again meanwhile, serve, and be asked to end. The result is
// the pod as it was.
func (k Kind) Kill(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := k.Client.CoreV1().Pods(k.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := sendSignal(pod.UID, syscall.SIGSTOP)
	if err != nil {
		t.Fatal(err)
	}
	if frozen == 0 {
		t.Fatalf("pod %s has no process to kill", name)
	}
	if err := k.Client.CoreV1().Pods(k.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := sendSignal(pod.UID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return pod
}

// KillOnNode kills a pod in a lab with nodes. It returns when the node's kube-proxy sends no
// connection to the pod any more: how long Kubernetes takes for that is not the addon's.
func (s *Suite) KillOnNode(t *testing.T, k Kind, name string) Disruption {
	t.Helper()
	d := Disruption{From: time.Now()}
	pod := k.Kill(t, name)
	if k.Client == s.Hub { // agents are behind no Service
		Eventually(t, "no Service sends to "+name, func() error {
			routed, err := s.Lab.Routes(t.Context(), s.Lab.Hub.Name, pod.Status.PodIP)
			if routed {
				err = fmt.Errorf("kube-proxy has rules for %s", pod.Status.PodIP)
			}
			return err
		})
	}
	d.Until = time.Now()
	return d
}

// Settle waits until every Deployment of the addon is rolled out everywhere.
func (s *Suite) Settle(t *testing.T) {
	t.Helper()
	for _, cluster := range s.Clusters {
		for _, k := range s.Kinds(t, cluster) {
			Eventually(t, k.Name+" rolled out", func() error {
				deployment, err := k.Client.AppsV1().Deployments(k.Namespace).Get(context.Background(), k.deployment, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return RolledOut(deployment)
			})
		}
	}
}
