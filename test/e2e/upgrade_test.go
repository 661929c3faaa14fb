package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// kind is a kind of the addon's pods.
type kind struct {
	name       string
	client     *kubernetes.Clientset
	namespace  string
	deployment string
}

func kinds(t *testing.T, cluster string) []kind {
	return []kind{
		{"addon manager", suite.hub, suite.namespace, "cluster-proxy-addon-manager"},
		{"proxy server", suite.hub, suite.namespace, "cluster-proxy"},
		{"proxy API", suite.hub, suite.namespace, "cluster-proxy-addon-user"},
		{"proxy agent", clientset(t, suite.direct(cluster)), suite.agentNamespace, "cluster-proxy-proxy-agent"},
	}
}

// pods are the names of those that are not on their way out.
func (k kind) pods(ctx context.Context) ([]string, error) {
	deployment, err := k.client.AppsV1().Deployments(k.namespace).Get(ctx, k.deployment, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, err
	}
	pods, err := k.client.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
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

// kill ends a pod's process, without a word, and then the pod: the kubelet alone
// would ask the process first, and give it two seconds at least. It returns when
// that was.
func (k kind) kill(t *testing.T, name string) (at time.Time) {
	t.Helper()
	pod, err := k.client.CoreV1().Pods(k.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	at = time.Now()
	killed := 0
	for _, group := range groups {
		content, err := os.ReadFile(group)
		comm, commErr := os.ReadFile(filepath.Join(filepath.Dir(group), "comm"))
		if err != nil || commErr != nil || !strings.Contains(string(content), "pod"+string(pod.UID)) || strings.TrimSpace(string(comm)) != "cluster-proxy" {
			continue // not in the pod, or gone meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(group)))
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("pod %s has no process to kill", name)
	}
	if err := k.client.CoreV1().Pods(k.namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	return at
}

// settle waits until every Deployment of the addon is rolled out everywhere.
func settle(t *testing.T) {
	t.Helper()
	for _, cluster := range suite.clusters {
		for _, k := range kinds(t, cluster) {
			eventually(t, k.name+" rolled out", func() error {
				deployment, err := k.client.AppsV1().Deployments(k.namespace).Get(context.Background(), k.deployment, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return rolledOut(deployment)
			})
		}
	}
}

// underTraffic does something while clients of every cluster are at work, and
// a little longer, and holds the system to its promises.
func underTraffic(t *testing.T, how ending, do func() []time.Time) {
	t.Helper()
	settle(t)
	var all []*traffic
	for _, cluster := range suite.clusters {
		all = append(all, startTraffic(t, cluster, how))
	}
	disruptions := do()
	settle(t)
	all[0].pause(3 * time.Second)
	for _, tr := range all {
		tr.verdict(t, time.Second, disruptions...)
	}
}

// TestPodsAreKilled kills a pod of each kind, without warning.
func TestPodsAreKilled(t *testing.T) {
	needNodes(t)
	for _, k := range kinds(t, suite.clusters[0]) {
		t.Run(k.name, func(t *testing.T) {
			underTraffic(t, killed, func() []time.Time {
				names, err := k.pods(t.Context())
				if err != nil || len(names) < 2 {
					t.Fatalf("pods are %v, %v; want two", names, err)
				}
				return []time.Time{k.kill(t, names[0])}
			})
		})
	}
}

// TestNodeDrain evicts every pod of the addon as kubectl drain does: as far as
// disruption budgets allow, again and again. The clusters of the lab have one
// node each, so it is not cordoned; new pods start there too.
func TestNodeDrain(t *testing.T) {
	needNodes(t)
	underTraffic(t, asked, func() []time.Time {
		for _, cluster := range suite.clusters {
			for _, k := range kinds(t, cluster) {
				names, err := k.pods(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					eventually(t, "eviction of "+name, func() error {
						err := k.client.PolicyV1().Evictions(k.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: k.namespace}})
						if apierrors.IsNotFound(err) {
							err = nil // evicted with the hub's, which both clusters have
						}
						return err
					})
				}
			}
		}
		return nil
	})
}

func TestProxyServersAreScaled(t *testing.T) {
	needNodes(t)
	scale := func(replicas int) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"proxyServer":{"replicas":%d}}}`, replicas)
		if _, err := suite.configuration.Patch(context.Background(), identity.AddonName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprint(replicas, " proxy servers"), func() error {
			deployment, err := suite.hub.AppsV1().Deployments(suite.namespace).Get(context.Background(), "cluster-proxy", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if int(*deployment.Spec.Replicas) != replicas {
				return fmt.Errorf("%d are wanted", *deployment.Spec.Replicas)
			}
			return rolledOut(deployment)
		})
	}
	scale(1)
	t.Cleanup(func() { scale(2) })
	underTraffic(t, asked, func() []time.Time {
		scale(3)
		settle(t)
		scale(2)
		return nil
	})
}

// firstRelease is the commit whose processes must work with today's for as long
// as clusters may run them.
const firstRelease = "8b83d547a664060d85e264ec15d782593719f17a"

// TestUpgrade installs the chart and image of the commit before this one, and
// those of the first release, and upgrades to this one's.
func TestUpgrade(t *testing.T) {
	needNodes(t)
	commits := map[string]string{"the commit before": "HEAD~1", "the first release": firstRelease}
	if commit := os.Getenv("E2E_UPGRADE_FROM"); commit != "" {
		commits = map[string]string{commit: commit}
	}
	for name, commit := range commits {
		t.Run(name, func(t *testing.T) { upgradeFrom(t, commit) })
	}
}

func upgradeFrom(t *testing.T, commit string) {
	source := filepath.Join(t.TempDir(), "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive "$1" | tar -x -C "$2"`, "sh", commit, source)
	if out, err := archive.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("taking commit %s out of git: %v: %s; a shallow clone lacks it: run git fetch --unshallow, or set E2E_UPGRADE_FROM to one that is there", commit, err, out)
	}
	binary := filepath.Join(t.TempDir(), "cluster-proxy")
	if err := buildBinary(t.Context(), source, binary); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image.tar")
	tag := "from-" + strings.ToLower(strings.NewReplacer("~", "-", "/", "-").Replace(commit))
	if err := lab.PackAddon(binary, tag, image); err != nil {
		t.Fatal(err)
	}
	if err := suite.lab.LoadImage(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	install := func(root string, values ...string) {
		t.Helper()
		chart := filepath.Join(root, "charts/cluster-proxy")
		if err := suite.lab.InstallChart(t.Context(), "cluster-proxy", suite.namespace, chart, append(suite.chartValues(), values...)...); err != nil {
			t.Fatal(err)
		}
	}
	install(source, "tag="+tag)
	for _, cluster := range suite.clusters {
		agentsHaveImage(t, cluster, ":"+tag)
	}
	underTraffic(t, asked, func() []time.Time {
		install("../..")
		for _, cluster := range suite.clusters {
			agentsHaveImage(t, cluster, ":lab")
		}
		return nil
	})
}

func agentsHaveImage(t *testing.T, cluster, suffix string) {
	t.Helper()
	managed := clientset(t, suite.direct(cluster))
	eventually(t, cluster+"'s agents of "+suffix, func() error {
		deployment, err := managed.AppsV1().Deployments(suite.agentNamespace).Get(context.Background(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if image := deployment.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, suffix) {
			return fmt.Errorf("the image is %s", image)
		}
		return rolledOut(deployment)
	})
}
