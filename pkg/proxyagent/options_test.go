package proxyagent

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestBadFlagsAreNamed(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--cluster-name=Not_A_Name", "--ca-cert=", "--agent-identifiers=host=x"}, "--cluster-name"},
		{[]string{"--cluster-name=c"}, "is empty"},
		{[]string{"--graceful-shutdown-timeout=-1s"}, "--graceful-shutdown-timeout"},
		{[]string{"--enable-port-forward-proxy"}, "--hub-kubeconfig"},
		{[]string{"--enable-port-forward-proxy", "--hub-kubeconfig=x", "--proxy-server-host=hub"}, "--proxy-server-host"},
		{[]string{"--oidc-issuer-url=https://issuer.example.org"}, "--oidc-client-id"},
		{[]string{"--oidc-issuer-url=http://issuer.example.org", "--oidc-client-id=a"}, "https URL"},
		{[]string{"--agent-identifiers=planet=earth"}, "planet"},
		{[]string{"--agent-cert=x"}, "--agent-key"},
		{[]string{"--proxy-server-port=0"}, "--proxy-server-port"},
		{[]string{"--enable-contention-profiling"}, "--enable-profiling"},
		{[]string{"--sync-interval=1m"}, "--sync-interval-cap"},
	} {
		options := NewOptions()
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		options.AddFlags(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want one line that names %q", test.args, err, test.want)
		}
	}
}

// TestKubeAPIServerIsAskedDirectly has a proxy in the environment, which is before the hub, and
// in a kubeconfig.
func TestKubeAPIServerIsAskedDirectly(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://corporate.example:3128")
	for more, want := range map[string]string{"": "", "    proxy-url: http://own.example:3128\n": "http://own.example:3128"} {
		kubeconfig := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {cluster: c, user: u}\nusers:\n- name: u\n  user: {token: x}\nclusters:\n- name: c\n  cluster:\n    server: https://10.96.0.1:443\n"+more), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := clusterConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if config.Proxy == nil {
			t.Fatal("the kube-apiserver is asked through the proxy of the environment")
		}
		var got string
		if proxy, err := config.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "10.96.0.1:443"}}); err != nil {
			t.Fatal(err)
		} else if proxy != nil {
			got = proxy.String()
		}
		if got != want {
			t.Errorf("with %q in the kubeconfig it is asked through %q, want %q", more, got, want)
		}
	}
}
