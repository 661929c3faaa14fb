package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInput runs commands that cannot work. Each ends at once, before
// anything is served or written, with words that name what is wrong and what is
// allowed.
func TestBadInput(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "hub")
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command":        {[]string{"proxy"}, []string{`"proxy"`}},
		"unknown flag":           {[]string{"proxy-api", "--port=1"}, []string{"--port"}},
		"not a number":           {[]string{"proxy-server", "--server-port=http"}, []string{"--server-port", `"http"`}},
		"missing certificates":   {[]string{"proxy-api"}, []string{"--server-cert", "PEM file"}},
		"agent's cluster name":   {[]string{"proxy-agent", "--cluster-name=A_B"}, []string{"--cluster-name", `"A_B"`}},
		"pull policy":            {[]string{"addon-manager", "--image-pull-policy=Sometimes"}, []string{"--image-pull-policy", "Always, IfNotPresent or Never"}},
		"feature gate":           {[]string{"addon-manager", "--feature-gates=Flying=true"}, []string{"--feature-gates", "Flying", "ClusterProfile"}},
		"URL of the proxy API":   {[]string{"addon-manager", "--proxy-api-url=http://a"}, []string{"--proxy-api-url", "https://"}},
		"Secrets in the index":   {[]string{"addon-manager", "--fleet-index-resources=pods,secrets"}, []string{"--fleet-index-resources", "secrets", "no Secrets are indexed"}},
		"malformed kubeconfig":   {[]string{"addon-manager", "--kubeconfig=" + broken}, []string{"--kubeconfig", broken, "line 1"}},
		"kubeconfig not there":   {[]string{"addon-manager", "--kubeconfig=" + broken + "2"}, []string{"--kubeconfig", broken + "2", "no such file"}},
		"certificates of agents": {[]string{"proxy-server", "--cluster-cert=/none", "--cluster-key=/none"}, []string{"--cluster-ca-cert"}},
	} {
		t.Run(name, func(t *testing.T) {
			command := newCommand(io.Discard)
			command.SetArgs(test.args)
			command.SetOut(io.Discard)
			command.SetErr(io.Discard)
			err := command.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}
