package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	inventory "sigs.k8s.io/cluster-inventory-api/client/clientset/versioned"
	inventoryclient "sigs.k8s.io/cluster-inventory-api/client/clientset/versioned/typed/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/clusterprofile"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// defineClusterProfiles installs the definition of ClusterProfile, which is not
// OCM's own. The addon manager has been waiting for it since it started.
func defineClusterProfiles(t *testing.T) inventoryclient.ClusterProfileInterface {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-inventory-api").Output()
	if err != nil {
		t.Fatal("finding module cluster-inventory-api:", err)
	}
	definition := filepath.Join(strings.TrimSpace(string(module)), "config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml")
	path, env := installed.KubectlProgram("hub")
	for _, args := range [][]string{{"apply", "--server-side"}, {"wait", "--for=condition=Established", "--timeout=60s"}} {
		cmd := exec.CommandContext(t.Context(), path, append(args, "--kubeconfig="+installed.HubKubeconfig, "-f", definition)...)
		cmd.Env = append(cmd.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", args[0], err, out)
		}
	}
	client, err := inventory.NewForConfig(installed.HubConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client.ApisV1alpha1().ClusterProfiles("default")
}

// TestClusterProfileSaysHowToReachTheCluster makes a ClusterProfile as OCM's
// registration controller does, and reaches the cluster with nothing but what is
// in its status, and a credential plugin. It disturbs nothing: it removes the ClusterProfile.
func TestClusterProfileSaysHowToReachTheCluster(t *testing.T) {
	releaseOnNodes(t)
	installed.NeedLab(t, "needs the chart's feature gate and defines ClusterProfiles")
	profiles := defineClusterProfiles(t)
	cluster := installed.Clusters[0]
	profile, err := profiles.Create(t.Context(), &v1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-profile", Labels: map[string]string{
			v1alpha1.LabelClusterManagerKey: clusterprofile.Provider, clusterv1.ClusterNameLabelKey: cluster,
		}},
		Spec: v1alpha1.ClusterProfileSpec{ClusterManager: v1alpha1.ClusterManager{Name: clusterprofile.Provider}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = profiles.Delete(context.Background(), profile.Name, metav1.DeleteOptions{}) })
	suite.Eventually(t, "somebody else's status written", func() error {
		now, err := profiles.Get(t.Context(), profile.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status.Conditions = []metav1.Condition{{Type: "ControlPlaneHealthy", Status: metav1.ConditionTrue, Reason: "Up", LastTransitionTime: metav1.Now()}}
		now.Status.AccessProviders = append(now.Status.AccessProviders, v1alpha1.AccessProvider{Name: "other", Cluster: clientcmdv1.Cluster{Server: "https://other.example.com"}})
		_, err = profiles.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		return err
	})
	var provider v1alpha1.AccessProvider
	var published *v1alpha1.ClusterProfile
	suite.Eventually(t, "an access provider of ours beside the other one", func() error {
		now, err := profiles.Get(t.Context(), profile.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		find := func(name string) int {
			return slices.IndexFunc(now.Status.AccessProviders, func(p v1alpha1.AccessProvider) bool { return p.Name == name })
		}
		ours := find(clusterprofile.Provider)
		if ours < 0 || find("other") < 0 || len(now.Status.Conditions) != 1 {
			return fmt.Errorf("status is %+v", now.Status)
		}
		provider, published = now.Status.AccessProviders[ours], now
		return nil
	})
	if want := "https://cluster-proxy-addon-user." + installed.Namespace + ":9092/" + cluster; provider.Cluster.Server != want {
		t.Errorf("server is %q, want %q", provider.Cluster.Server, want)
	}
	suite.WantPods(t, withPlugin(t, published))
}

// withPlugin returns the configuration that a program with examples/cluster-profile's file
// makes of a ClusterProfile. Its credential is the token that the kubelet would give its pod.
func withPlugin(t *testing.T, profile *v1alpha1.ClusterProfile) *rest.Config {
	t.Helper()
	config, err := access.NewFromFile("../../examples/cluster-profile/providers.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range config.Providers {
		p.ExecConfig.Command = buildCredentials(t)
		p.ExecConfig.Args = append(p.ExecConfig.Args, "--token-file="+projectedToken(t, "default", suite.HubUser))
	}
	cfg, err := config.BuildConfigFromCP(profile)
	if err != nil {
		t.Fatal(err)
	}
	return inHub(cfg)
}

// buildCredentials builds the credential plugin.
func buildCredentials(t *testing.T) string {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "clusterprofile-credentials")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", plugin, "../../cmd/clusterprofile-credentials")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return plugin
}

// projectedToken writes the token of a service account of the hub that examples/cluster-profile's
// patch has the kubelet project, and returns its file.
func projectedToken(t *testing.T, namespace, account string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{identity.ProxyAPIAudience}}}
	token, err := installed.Hub.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token.Status.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
