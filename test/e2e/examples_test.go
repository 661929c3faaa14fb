package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// proxyAPIService is the proxy API's address in the hub.
const proxyAPIService = "cluster-proxy-addon-user.open-cluster-management-addon.svc:9092"

// inHub makes a client dial as in the hub, where the Service's name leads to the proxy API. TLS
// verifies that name.
func inHub(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, _ := strings.Cut(address, ":"); strings.HasPrefix(host, "cluster-proxy-addon-user."+installed.Namespace) && port == "9092" {
			address = installed.ProxyAPI
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return cfg
}

// runExample runs the marked commands of an example's README in a folder that has the examples,
// as administrators of the hub and of a cluster. More are pairs of names in it and what they are here.
func runExample(t *testing.T, name, cluster string, want int, more ...string) {
	t.Helper()
	dir := t.TempDir()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	kubeconfigs := map[string]string{"hub": installed.HubKubeconfig, "cluster": installed.Lab.Managed[cluster].KubeconfigPath}
	names := strings.NewReplacer(append(more, "<cluster>", cluster, proxyAPIService, installed.ProxyAPI)...)
	if ran := runPage(t, "examples/"+name+"/README.md", dir, kubeconfigs, pagePrograms(t), names); ran != want {
		t.Errorf("%d blocks of the README are marked, want %d", ran, want)
	}
}

// makeNamespace makes one that the test removes.
func makeNamespace(t *testing.T, cs kubernetes.Interface, name string) {
	t.Helper()
	if _, err := cs.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// removeBinding removes a ClusterRoleBinding that an example makes when the test ends.
func removeBinding(t *testing.T, cs kubernetes.Interface, name string) {
	t.Cleanup(func() {
		if err := cs.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("removing what the example made: %v", err)
		}
	})
}

// TestArgoCDExample runs the example's commands, and reaches the cluster with what Argo CD
// finds in the Secret. It disturbs nothing.
func TestArgoCDExample(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "has administrators of its own")
	cluster := installed.Clusters[0]
	managed := suite.Clientset(t, installed.AdminConfig(cluster))
	makeNamespace(t, installed.Hub, "argocd")
	const controller = "argocd-application-controller"
	if _, err := installed.Hub.CoreV1().ServiceAccounts("argocd").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: controller}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	removeBinding(t, installed.Hub, "argocd-uses-clusters")
	removeBinding(t, managed, "argocd-deploys")
	runExample(t, "argocd", cluster, 3)
	secrets, err := installed.Hub.CoreV1().Secrets("argocd").List(t.Context(), metav1.ListOptions{LabelSelector: "argocd.argoproj.io/secret-type=cluster"})
	if err != nil || len(secrets.Items) != 1 {
		t.Fatalf("Argo CD finds %d Secrets, %v; want 1", len(secrets.Items), err)
	}
	data := secrets.Items[0].Data
	var config struct {
		ExecProviderConfig struct {
			APIVersion string `json:"apiVersion"`
			Command    string `json:"command"`
		} `json:"execProviderConfig"`
		TLSClientConfig struct {
			Insecure bool   `json:"insecure"`
			CAData   []byte `json:"caData"`
		} `json:"tlsClientConfig"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data["config"]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil {
		t.Fatal(err)
	}
	plugin := config.ExecProviderConfig
	if string(data["name"]) != cluster || string(data["server"]) != "https://"+proxyAPIService+"/"+cluster || config.TLSClientConfig.Insecure || plugin.Command != "/plugins/clusterprofile-credentials" {
		t.Errorf("cluster %q is at %q, unverified: %v, by plugin %q", data["name"], data["server"], config.TLSClientConfig.Insecure, plugin.Command)
	}
	// Argo CD does not tell the plugin the cluster.
	cfg := inHub(&rest.Config{Host: string(data["server"]), TLSClientConfig: rest.TLSClientConfig{CAData: config.TLSClientConfig.CAData}, ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: plugin.APIVersion, Command: buildCredentials(t), Args: []string{"--token-file=" + projectedToken(t, "argocd", controller)}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}})
	client := suite.Clientset(t, cfg)
	suite.Eventually(t, "a Deployment by Argo CD", func() error {
		_, err := client.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err
	})
}

// TestManagedServiceAccountExample does what the other addon does, and runs the example's
// commands with the token that it has stored. It disturbs nothing.
func TestManagedServiceAccountExample(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "has administrators of its own")
	cluster := installed.Clusters[0]
	managed := suite.Clientset(t, installed.AdminConfig(cluster))
	const namespace, name = "open-cluster-management-managed-serviceaccount", "ci"
	makeNamespace(t, managed, namespace)
	accounts := managed.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secrets := installed.Hub.CoreV1().Secrets(cluster)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": installed.ClusterCA(cluster)}}
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	removeBinding(t, managed, "ci-views")
	runExample(t, "managed-service-account", cluster, 2)
}
