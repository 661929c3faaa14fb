package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/test/ports"
	testprogram "open-cluster-management.io/cluster-proxy/test/program"
)

const (
	ocmHubNamespace     = "open-cluster-management-hub"
	klusterletNamespace = "open-cluster-management-agent"
)

// applyCRDs applies OCM's definitions: those in crds/hub or crds/managed of the
// assets.
func (c *Cluster) applyCRDs(ctx context.Context, assets Assets) error {
	folder := "crds-managed"
	if c.isHub() {
		folder = "crds-hub"
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", assets.path(folder)},
		{"wait", "--for=condition=Established", "--timeout=60s", "-f", assets.path(folder)},
	} {
		cmd := exec.CommandContext(ctx, assets.path("kubectl"), append([]string{"--kubeconfig=" + c.KubeconfigPath}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECACHEDIR="+c.file("kubectl-cache"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("applying OCM's definitions to %s: %w\n%s", c.Name, err, out)
		}
	}
	return nil
}

func (c *Cluster) createNamespaces(ctx context.Context, names ...string) error {
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	for _, name := range names {
		_, err := cs.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// startOCMHub starts OCM's hub controllers and allows the bootstrap user to
// register clusters.
func (c *Cluster) startOCMHub(ctx context.Context, g *group, assets Assets) error {
	if err := c.createNamespaces(ctx, ocmHubNamespace); err != nil {
		return err
	}
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: "ocm-bootstrap"}
	if _, err := cs.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, Verbs: []string{"create", "get", "list", "watch"}},
	}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if _, err := cs.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ocm-bootstrap"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "ocm:bootstrap"}},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for _, controller := range []struct {
		name string
		args []string
	}{
		{"registration", []string{"--feature-gates=DefaultClusterSet=true,ManagedClusterAutoApproval=true", "--auto-approved-csr-users=ocm-bootstrap"}},
		{"placement", nil},
		{"addon", nil},
	} {
		port, err := ports.Next()
		if err != nil {
			return err
		}
		p := c.program(assets, "ocm", append([]string{controller.name, "--kubeconfig=" + c.insideKubeconfig(), "--namespace=" + ocmHubNamespace,
			"--disable-leader-election", fmt.Sprintf("--listen=127.0.0.1:%d", port)}, controller.args...)...)
		p.name, p.log = "ocm-"+controller.name, filepath.Join(c.logs, "hub-ocm-"+controller.name+".log")
		if err := c.start(g, p); err != nil {
			return err
		}
	}
	return nil
}

// startKlusterlet starts OCM's agent, which registers the cluster at the hub.
func (c *Cluster) startKlusterlet(ctx context.Context, g *group, assets Assets, hub *Cluster) error {
	if err := c.createNamespaces(ctx, klusterletNamespace, "open-cluster-management-agent-addon"); err != nil {
		return err
	}
	port, err := ports.Next()
	if err != nil {
		return err
	}
	hubKubeconfigDir := c.file("hub-kubeconfig")
	p := c.program(assets, "ocm", "klusterlet", "--kubeconfig="+c.insideKubeconfig(), "--namespace="+klusterletNamespace,
		"--disable-leader-election", fmt.Sprintf("--listen=127.0.0.1:%d", port), "--spoke-cluster-name="+c.Name, "--agent-id="+strings.ReplaceAll(c.Name, ".", "-")+"-agent",
		"--bootstrap-kubeconfig="+hub.file("bootstrap.kubeconfig"), "--hub-kubeconfig-dir="+hubKubeconfigDir,
		"--workload-source-driver=kube", "--workload-source-config="+filepath.Join(hubKubeconfigDir, "kubeconfig"),
		"--status-sync-interval=1s", "--cluster-healthcheck-period=5s")
	p.name, p.log = "klusterlet", klusterletLog(c.logs, c.Name)
	// An addon's Lease is looked at each second, and is stale after a minute.
	p.env = append(os.Environ(), "LAB_ADDON_POLL=1s", "LAB_ADDON_LEASE_SECONDS=12")
	return c.start(g, p)
}

func klusterletLog(logs, cluster string) string {
	return filepath.Join(logs, cluster+"-klusterlet.log")
}

// waitRegistered waits until the hub says that a cluster has joined and is
// available.
func (c *Cluster) waitRegistered(ctx context.Context, name string) error {
	clusters, err := clusterclient.NewForConfig(c.config)
	if err != nil {
		return err
	}
	err = poll(ctx, func(ctx context.Context) error {
		cluster, err := clusters.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range []string{clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
			if !meta.IsStatusConditionTrue(cluster.Status.Conditions, condition) {
				return fmt.Errorf("waiting for condition %s of ManagedCluster %q", condition, name)
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w; the log of its klusterlet ends with:\n%s", err, testprogram.Tail(klusterletLog(c.logs, name)))
	}
	return err
}

// Rejoin has a cluster that was deleted on the hub register there again, as if
// its klusterlet had been installed anew. It returns when it has joined.
func (l *Lab) Rejoin(ctx context.Context, cluster string) error {
	c := l.Managed[cluster]
	if c == nil || c.machine == nil {
		return fmt.Errorf("cluster %q has no machine of its own, on which to start its klusterlet again", cluster)
	}
	if err := c.stopProgram(ctx, "klusterlet"); err != nil {
		return err
	}
	if err := os.RemoveAll(c.file("hub-kubeconfig")); err != nil {
		return err
	}
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	err = cs.CoreV1().Secrets(klusterletNamespace).Delete(ctx, "hub-kubeconfig-secret", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := c.startKlusterlet(ctx, l.group, l.assets, l.Hub); err != nil {
		return err
	}
	return l.Hub.waitRegistered(ctx, cluster)
}
