package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// hubUser is a service account of the hub that may reach clusters, and may look
// around on one of them. It gives a kubeconfig of the hub for it.
func hubUser(t *testing.T, name, cluster string) (kubeconfig string) {
	t.Helper()
	ctx := context.Background()
	accounts := suite.hub.CoreV1().ServiceAccounts("default")
	meta := metav1.ObjectMeta{Name: "e2e-" + name}
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	managed := clientset(t, suite.direct(cluster))
	t.Cleanup(func() {
		_ = accounts.Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = suite.hub.RbacV1().ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = managed.RbacV1().ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	if _, err := suite.hub.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role("cluster-proxy-user"),
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: meta.Name, Namespace: "default"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	there := "cluster:hub:system:serviceaccount:default:" + meta.Name
	if _, err := managed.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role("view"),
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: there}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(suite.lab.Hub.KubeconfigPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData = nil, nil
		user.Token = token.Status.Token
	}
	kubeconfig = filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// TestKubectlPlugin lives a user's first minutes: which clusters are there, who
// am I on one, does everything work, and a kubeconfig that stock kubectl takes.
func TestKubectlPlugin(t *testing.T) {
	cluster := suite.clusters[0]
	hub := hubUser(t, "plugin", cluster)
	dir := t.TempDir()
	binary := filepath.Join(dir, "kubectl-clusterproxy")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/kubectl-clusterproxy").CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	kubectl, env := suite.lab.Kubectl("hub")
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), kubectl, args...)
		cmd.Env = append(append(os.Environ(), env...), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	plugin := func(args ...string) string {
		t.Helper()
		var out string
		eventually(t, "kubectl clusterproxy "+args[0], func() (err error) {
			out, err = run(append([]string{"clusterproxy", "--kubeconfig=" + hub}, args...)...)
			return err
		})
		return out
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"status", cluster}, []string{cluster, "True"}},
		{[]string{"whoami", cluster}, []string{"system:serviceaccount:default:e2e-plugin", "cluster:hub:system:serviceaccount:default:e2e-plugin"}},
		{[]string{"check", cluster}, []string{"√ hub-api", "√ cluster-api", "√ cluster-identity", "√ cluster-stream"}},
	} {
		out := plugin(test.args...)
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl clusterproxy %v does not say %q:\n%s", test.args, want, out)
			}
		}
	}
	file := filepath.Join(dir, "clusters.kubeconfig")
	if err := os.WriteFile(file, []byte(plugin("kubeconfig", cluster)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("--kubeconfig="+file, "--context="+cluster, "get", "pods", "-n", "default"); err != nil || !strings.Contains(out, "web-") {
		t.Errorf("get pods with that kubeconfig: %v\n%s", err, out)
	}
}
