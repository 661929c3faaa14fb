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

	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	testprogram "open-cluster-management.io/cluster-proxy/test/testkit/program"
)

const (
	ocmHubNamespace     = "open-cluster-management-hub"
	bootstrapUser       = "ocm-bootstrap"
	bootstrapGroup      = "ocm:bootstrap"
	klusterletNamespace = "open-cluster-management-agent"
)

// applyCRDs applies OCM's definitions. A hub has those of managed clusters too: it
// can be one.
func (c *Cluster) applyCRDs(ctx context.Context, assets Assets) error {
	folders := []string{"-f", assets.ofOCM(managedCRDs)}
	if c.isHub() {
		folders = append(folders, "-f", assets.ofOCM(hubCRDs))
	}
	for _, args := range [][]string{
		{"apply", "--server-side"},
		{"wait", "--for=condition=Established", "--timeout=60s"},
	} {
		if out, err := c.kubectl(ctx, assets, append(args, folders...)...); err != nil {
			return fmt.Errorf("applying OCM's definitions to %s: %w\n%s", c.Name, err, out)
		}
	}
	return nil
}

// kubectl runs kubectl as the cluster's administrator.
func (c *Cluster) kubectl(ctx context.Context, assets Assets, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, assets.path("kubectl"), append([]string{"--kubeconfig=" + c.KubeconfigPath}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+c.file("kubectl-cache"))
	return cmd.CombinedOutput()
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
func (c *Cluster) startOCMHub(ctx context.Context, g *group, assets Assets, release release) error {
	if err := c.createNamespaces(ctx, ocmHubNamespace); err != nil {
		return err
	}
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: bootstrapUser}
	if _, err := cs.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, Verbs: []string{"create", "get", "list", "watch"}},
	}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if _, err := cs.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: bootstrapUser},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: bootstrapGroup}},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	registration := []string{"--feature-gates=DefaultClusterSet=true,ManagedClusterAutoApproval=true", "--auto-approved-csr-users=" + bootstrapUser}
	if release.converts {
		if err := c.convertAddons(ctx, g, assets); err != nil {
			return err
		}
	}
	if release.grpc {
		if err := c.startGRPC(ctx, g, assets); err != nil {
			return fmt.Errorf("starting OCM's gRPC server: %w", err)
		}
		registration = append(registration, "--enabled-registration-drivers=csr,grpc", "--auto-approved-grpc-users="+bootstrapUser,
			"--grpc-ca-file="+c.file("grpc-ca.crt"), "--grpc-key-file="+c.file("grpc-ca.key"))
	}
	for _, controller := range []struct {
		name string
		args []string
	}{{"registration", registration}, {"placement", nil}, {"addon", nil}} {
		args := append([]string{"--kubeconfig=" + c.insideKubeconfig()}, controller.args...)
		if err := c.startOCM(g, assets, controller.name, args...); err != nil {
			return err
		}
	}
	return nil
}

// startOCM starts one of OCM's programs on the hub.
func (c *Cluster) startOCM(g *group, assets Assets, name string, args ...string) error {
	port, err := ports.Next()
	if err != nil {
		return err
	}
	p := c.ocm(assets, append([]string{name, "--namespace=" + ocmHubNamespace, "--disable-leader-election", fmt.Sprintf("--listen=127.0.0.1:%d", port)}, args...)...)
	p.name, p.log = "ocm-"+name, filepath.Join(c.logs, "hub-ocm-"+name+".log")
	return c.start(g, p)
}

// ocm is a program of OCM's, which leaves private keys in the folder for temporary files: it is
// the cluster's own, and goes with it.
func (c *Cluster) ocm(assets Assets, args ...string) program {
	p := c.program(assets, ocmProgram, args...)
	p.path = assets.ofOCM(ocmProgram)
	p.env = append(os.Environ(), "TMPDIR="+c.dir)
	return p
}

// startKlusterlet starts OCM's agent, which registers the cluster at the hub under
// a name of the caller's choice.
func (c *Cluster) startKlusterlet(ctx context.Context, g *group, assets Assets, hub *Cluster, name string) error {
	if err := c.createNamespaces(ctx, klusterletNamespace, "open-cluster-management-agent-addon"); err != nil {
		return err
	}
	port, err := ports.Next()
	if err != nil {
		return err
	}
	hubKubeconfigDir := c.file("hub-kubeconfig")
	args := []string{"klusterlet", "--kubeconfig=" + c.insideKubeconfig(), "--namespace=" + klusterletNamespace,
		"--disable-leader-election", fmt.Sprintf("--listen=127.0.0.1:%d", port), "--spoke-cluster-name=" + name, "--agent-id=" + strings.ReplaceAll(name, ".", "-") + "-agent",
		"--bootstrap-kubeconfig=" + hub.file("bootstrap.kubeconfig"), "--hub-kubeconfig-dir=" + hubKubeconfigDir,
		"--status-sync-interval=1s", "--cluster-healthcheck-period=5s"}
	if c.grpc {
		config := filepath.Join(hubKubeconfigDir, "config.yaml")
		args = append(args, "--registration-auth=grpc", "--grpc-bootstrap-config="+hub.file(grpcBootstrap), "--grpc-config="+config,
			"--workload-source-driver=grpc", "--workload-source-config="+config, "--cloudevents-client-id="+name+"-klusterlet-agent")
	} else {
		args = append(args, "--workload-source-driver=kube", "--workload-source-config="+filepath.Join(hubKubeconfigDir, "kubeconfig"))
	}
	if c.tokens {
		args = append(args, "--addon-kubeclient-registration-auth=token")
	}
	p := c.ocm(assets, args...)
	p.name, p.log = "klusterlet", klusterletLog(c.logs, name)
	// An addon's Lease is looked at each second, and is stale after a minute.
	p.env = append(p.env, "LAB_ADDON_POLL=1s", "LAB_ADDON_LEASE_SECONDS=12")
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
	if err := c.startKlusterlet(ctx, l.group, l.assets, l.Hub, cluster); err != nil {
		return err
	}
	return l.Hub.waitRegistered(ctx, cluster)
}
