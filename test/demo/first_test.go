package main

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestFarewell wants commands that work in one kubeconfig: the hub's context is current in it,
// and the plugin has added those of the clusters and the fleet.
func TestFarewell(t *testing.T) {
	var out bytes.Buffer
	(&demo{out: &out, dir: "/demo", kubeconfig: "/demo/kubeconfig", hubKubeconfig: "/demo/jane.kubeconfig"}).farewell()
	for _, want := range []string{"export KUBECONFIG=/demo/jane.kubeconfig PATH=/demo:$PATH\n", "kubectl clusterproxy status\n", "kubectl --context fleet "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
}

// TestTunnelByHand starts the binary's processes as the first step of the demo does, and has the
// Go example ask what answers as a kube-apiserver. The demo itself asks a real one.
func TestTunnelByHand(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+string(filepath.Separator), "./cmd/cluster-proxy", "./examples/tunnel-client")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ca := pkitest.NewCA(t, "cluster")
	config := pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "kube-apiserver", DNSNames: []string{"kubernetes.default.svc"}, Server: true}, ca).ServerConfig(tls.NoClientCert)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
		case "/api/v1/nodes":
			_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"}}]}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1"}`))
		}
	}))
	api.TLS = config
	api.StartTLS()
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: api.URL, CertificateAuthorityData: ca.CertPEM()}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	d := &demo{out: t.Output(), dir: dir, started: time.Now()}
	tunnel := &tunnel{demo: d, dir: t.TempDir(), name: "cluster1"}
	t.Cleanup(func() {
		if err := tunnel.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := tunnel.start(t.Context(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	said, err := tunnel.ask(t.Context(), kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"version v1.36.3", "node n1"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in what the example says", want)
		}
	}
	// A proxy server is not believed that has a certificate of somebody else.
	if err := os.WriteFile(tunnel.file("client.ca"), pkitest.NewCA(t, "stranger").CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := tunnel.ask(t.Context(), kubeconfig); err == nil || !strings.Contains(said, "certificate") {
		t.Errorf("with the CA of a stranger: %v; want an error about the certificate", err)
	}
}
