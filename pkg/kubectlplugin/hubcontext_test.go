package kubectlplugin

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// TestContextOfACluster has the user choose a context that the plugin has made, as everybody
// does: every command goes on with the hub, and says so once.
func TestContextOfACluster(t *testing.T) {
	kubeconfig := listHub(t, exposedList, 200)
	if _, _, err := run(t, kubeconfig, "kubeconfig", "--merge"); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		out  string
	}{
		"status":     {[]string{"status"}, "c2"},
		"check":      {[]string{"check"}, "√ hub-clusters"},
		"services":   {[]string{"services"}, "everywhere"},
		"version":    {[]string{"version"}, "plugin"},
		"whoami":     {[]string{"whoami", "c1"}, "system:authenticated"},
		"kubeconfig": {[]string{"kubeconfig"}, "current-context: c1"},
		"merge":      {[]string{"kubeconfig", "--merge"}, "added 2 contexts"},
		"test":       {[]string{"test", "c1"}, "√ test-get"},
		"bundle":     {[]string{"bundle", "c1", "--file=" + filepath.Join(t.TempDir(), "b.tar.gz")}, "files"},
	} {
		out, errOut, _ := run(t, kubeconfig, append([]string{"--context=c1"}, test.args...)...)
		if !strings.Contains(out, test.out) {
			t.Errorf("%s in the context of c1 prints\n%s%s\nwant %q", name, out, errOut, test.out)
		}
		if n := strings.Count(errOut, "Your context leads to cluster c1; this command asks its hub, "+clitest.HubOf(t, kubeconfig)+"\n"); n != 1 {
			t.Errorf("%s says %d times that it asks the hub, want once: %q", name, n, errOut)
		}
	}
	now, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name, cluster := range now.Clusters {
		if strings.Count(cluster.Server, "/apis/") > 1 {
			t.Errorf("the cluster %q leads to %s, which is below a cluster", name, cluster.Server)
		}
	}
	if names, _, err := run(t, kubeconfig, "--context=c1", "__complete", "status", ""); err != nil || !strings.Contains(names, "c2\n") {
		t.Errorf("completion in the context of c1: %q, %v, want c2", names, err)
	}
}

// TestContextsThatAreNoHub has contexts for which the hub is not known: what is not served
// there is not taken for nothing.
func TestContextsThatAreNoHub(t *testing.T) {
	status := func(w http.ResponseWriter, s metav1.Status) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(s.Code))
		_, _ = w.Write(clitest.Encoded(t, s))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/cluster1")
		switch {
		case path == "/version":
			_, _ = w.Write([]byte(`{"gitVersion": "v1"}`))
		case strings.HasPrefix(path, cli.GroupPath): // RBAC comes before what is served
			s := clitest.StatusOf(403, metav1.StatusReasonForbidden, v1alpha1.GroupVersion.Group, `clusters.clusterproxy.open-cluster-management.io is forbidden: User "jane" cannot list resource "clusters"`)
			status(w, s)
		default:
			status(w, clitest.StatusOf(404, metav1.StatusReasonNotFound, "", "the server could not find the requested resource"))
		}
	}))
	t.Cleanup(server.Close)
	for _, url := range []string{server.URL, server.URL + "/cluster1"} {
		config := clientcmdapi.NewConfig()
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: url}
		config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
		config.CurrentContext = "c"
		kubeconfig := filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"services"}, {"services", "c1"}, {"whoami", "c1"}, {"kubeconfig"}, {"test", "c1"}, {"check"}} {
			out, errOut, err := run(t, kubeconfig, args...)
			said := out + errOut
			if err != nil {
				said += err.Error()
			}
			if err == nil || !strings.Contains(said, url+" does not serve ") || !strings.Contains(said, "name the hub's with --context") {
				t.Errorf("%s at %s: %v, and\n%s\nwant that it is no hub", args, url, err, said)
			}
			if strings.Contains(said, "clusterrolebinding") || strings.Contains(said, "is exposed") {
				t.Errorf("%s at %s says what is not known:\n%s", args, url, said)
			}
		}
	}
}

// TestRefusedByTheHub wants who is refused told whom to ask for what.
func TestRefusedByTheHub(t *testing.T) {
	refused := clitest.StatusOf(403, metav1.StatusReasonForbidden, v1alpha1.GroupVersion.Group, `clusters.clusterproxy.open-cluster-management.io is forbidden: User "jane" cannot list resource "clusters" in API group "clusterproxy.open-cluster-management.io" at the cluster scope`)
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/"+v1alpha1.GroupVersion.String(), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"gitVersion": "v1"}`)) })
	mux.HandleFunc(cli.GroupPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(403)
		_, _ = w.Write(clitest.Encoded(t, refused))
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	kubeconfig := clitest.WriteKubeconfig(t, server)
	for _, args := range [][]string{{"status"}, {"kubeconfig"}, {"check"}} {
		out, errOut, err := run(t, kubeconfig, args...)
		said := out + errOut
		if err != nil {
			said += err.Error()
		}
		if want := `--clusterrole=cluster-proxy-user --user="jane"`; err == nil || strings.Count(said, want) != 1 {
			t.Errorf("%s: %v, and\n%s\nwant %s once", args, err, said, want)
		}
	}
}
