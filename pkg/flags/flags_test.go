package flags

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestErrors(t *testing.T) {
	var errs Errors
	if err := errs.Err(); err != nil {
		t.Errorf("without a problem: got %v, want nil", err)
	}
	errs.Required("server-cert", "", "a PEM file")
	if got, want := errs.Err().Error(), "--server-cert is empty: it must be a PEM file"; got != want {
		t.Errorf("one problem: got %q, want %q", got, want)
	}
	errs.Required("server-key", "key.pem", "a PEM file")
	errs.Port("server-port", 65536)
	errs.Port("health-port", 0)
	errs.HostPort("proxy-server", "hub")
	errs.HostPort("dns-server", "10.0.0.10:53")
	errs.Invalid("mode", "x", errors.New("there is no such mode"))
	errs.Invalid("strategies", "y", nil)
	AtLeast(&errs, Check[int]{"max-carriers", 0, 1}, Check[int]{"idle-carriers", 1, 1})
	AtLeast(&errs, Check[time.Duration]{"dial-timeout", -time.Second, 0})
	want := `[--server-cert is empty: it must be a PEM file, --server-port is 65536: it must be a port from 1 to 65535, or 0 for a free one, ` +
		`--proxy-server is "hub": it must be of the form host:port, --mode is "x": there is no such mode, ` +
		`--max-carriers is 0: it must be at least 1, --dial-timeout is -1s: it must be at least 0s]`
	if got := errs.Err().Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://a.example"}}]
contexts: [{name: a, context: {cluster: a}}]
`

func TestRESTConfig(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"config": kubeconfig, "current": "apiVersion: v1\nkind: Config\ncurrent-context: a\n", "broken": "clusters: ["} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := filepath.Join(dir, "current") + string(filepath.ListSeparator) + filepath.Join(dir, "config")
	for name, test := range map[string]struct {
		file, env string
		wantError string
	}{
		"a list":             {env: list},
		"a flag before it":   {file: filepath.Join(dir, "none"), env: list, wantError: "none"},
		"malformed":          {file: filepath.Join(dir, "broken"), wantError: "line 1"},
		"malformed, by list": {env: filepath.Join(dir, "broken"), wantError: "--hub-kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.env)
			config, err := RESTConfig("hub-kubeconfig", test.file)
			switch {
			case test.wantError == "" && (err != nil || config.Host != "https://a.example"):
				t.Errorf("got %+v, %v, want the host of the second file", config, err)
			case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
				t.Errorf("got %v, want an error that says %q", err, test.wantError)
			}
		})
	}
}
