package kubectlplugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

func FuzzViews(f *testing.F) {
	clitest.AddHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := clitest.NewTerminal()
		view := clitest.NewView(text, 1, proxyv1alpha1.UnreachableCluster{Name: text, Reason: text})
		view.Spec.Names = proxyv1alpha1.FleetViewNames(text)
		view.Status.UnreachableCount++ // a line for more than are listed
		if err := viewTables(t.Context(), p, nil, []proxyv1alpha1.FleetView{view, view}, true); err != nil {
			t.Fatal(err)
		}
		clitest.WantText(t, out.String(), 3+2+1+2)
	})
}

func FuzzWhoami(f *testing.F) {
	clitest.AddHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := clitest.NewTerminal()
		user := v1alpha1.UserInfo{Username: text, Groups: []string{text, text}}
		if err := whoamiTable(p, text, v1alpha1.ClusterIdentity{Hub: user, Cluster: user}); err != nil {
			t.Fatal(err)
		}
		clitest.WantText(t, out.String(), 3)
	})
}

// TestHostileClusters has each command speak of a cluster that lies about itself,
// and of one that answers with errors of its own making.
func TestHostileClusters(t *testing.T) {
	for i, text := range clitest.HostileText {
		if text == "" {
			continue
		}
		mux := http.NewServeMux()
		serve := func(path string, code int, object any) {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_ = json.NewEncoder(w).Encode(object)
			})
		}
		refusal := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 503, Message: text}
		serve("/version", 200, version.Info{GitVersion: "v1"})
		serve(cli.GroupPath, 200, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{
			{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionTrue, Version: text}},
			{ObjectMeta: metav1.ObjectMeta{Name: "c2"}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionStatus(text)}}}})
		serve(cli.GroupPath+"/c1/proxy/version", 200, version.Info{GitVersion: text})
		user := v1alpha1.UserInfo{Username: text, Groups: []string{text}}
		serve(cli.IdentityPath("c1"), 200, v1alpha1.ClusterIdentity{Hub: user, Cluster: user})
		serve(cli.GroupPath+"/c2/proxy/version", 503, refusal)
		serve(cli.ViewsPath, 200, proxyv1alpha1.FleetViewList{Items: []proxyv1alpha1.FleetView{clitest.NewView(text, 1, proxyv1alpha1.UnreachableCluster{Name: text, Reason: text})}})
		serve(cli.IdentityPath("c2"), 503, refusal)
		server := httptest.NewServer(mux)
		config := clientcmdapi.NewConfig()
		config.Clusters["hub"] = &clientcmdapi.Cluster{Server: server.URL}
		config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub"}
		config.CurrentContext = "hub"
		file := filepath.Join(t.TempDir(), fmt.Sprint("config", i))
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"views", "kubeconfig", "__complete views x", "status", "check", "whoami c1", "whoami c2", "status -o json", "status -o yaml", "check -o json",
			"version", "services", "services c1", "test c1", "test c2", "bench c2 --duration=1ms"} {
			var said bytes.Buffer
			out, errOut, err := run(t, file, strings.Fields(command)...)
			fmt.Fprintln(cli.Terminal{Writer: &said}, "error:", err)
			all := out + errOut + said.String()
			for _, r := range all {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("%s of %+q says %U: %+q", command, text, r, all)
					break
				}
			}
			if lines := map[string]int{"whoami c1": 3, "whoami c2": 0, "status": 3}; !strings.Contains(command, "-o") {
				if want, ok := lines[command]; ok && strings.Count(out, "\n") != want {
					t.Errorf("%s of %+q: %+q, want %d lines", command, text, out, want)
				}
			}
		}
		server.Close()
	}
}
