package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/discovery"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// asPlugin is the variable that makes the program of this test the plugin.
const asPlugin = "TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// jwt returns an unsigned token with claims.
func jwt(t *testing.T, claims any) string {
	t.Helper()
	encoded, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return "e30." + base64.RawURLEncoding.EncodeToString(encoded) + ".c2ln"
}

type claims struct {
	Audiences []string `json:"aud"`
	Expires   int64    `json:"exp"`
	ID        string   `json:"jti"`
}

func forProxyAPI(expires time.Time) claims {
	return claims{Audiences: []string{identity.ProxyAPIAudience}, Expires: expires.Unix()}
}

func execInfoOf(apiVersion, server string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"ExecCredential","spec":{"interactive":false,"cluster":{"server":%q,"certificate-authority-data":"Cg=="}}}`, apiVersion, server)
}

const proxyAPI = "https://cluster-proxy-addon-user.open-cluster-management-addon:9092"

func TestRun(t *testing.T) {
	good := execInfoOf(apiVersion, proxyAPI+"/c1")
	for _, tc := range []struct {
		name, info string
		args       []string
		token      any // claims, or the file's text
		want       string
	}{
		{name: "the token", info: good},
		{name: "a program that does not tell the cluster", info: `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}`},
		{name: "for the hub too", info: good, token: claims{Audiences: []string{"hub", identity.ProxyAPIAudience}, Expires: 1 << 40}},
		{name: "at the proxy API", info: good, args: []string{"--server=" + proxyAPI}},
		{name: "with a slash", info: good, args: []string{"--server=" + proxyAPI + "/"}},

		{name: "started by hand", want: "KUBERNETES_EXEC_INFO is not set"},
		{name: "a megabyte", info: strings.Repeat("[", 1<<20), want: "has 1048576 bytes"},
		{name: "no JSON", info: "{", want: "reading KUBERNETES_EXEC_INFO"},
		{name: "another type", info: `{"spec":[]}`, want: "reading KUBERNETES_EXEC_INFO"},
		{name: "deep", info: strings.Repeat("[", 200<<10), want: "reading KUBERNETES_EXEC_INFO"},
		{name: "another version", info: execInfoOf("client.authentication.k8s.io/v1beta1", proxyAPI+"/c1"), want: "set apiVersion client.authentication.k8s.io/v1"},
		{name: "an argument", info: good, args: []string{"get-token"}, want: `unexpected argument "get-token"`},

		{name: "--server, and no cluster", info: `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}`, args: []string{"--server=" + proxyAPI}, want: "set provideClusterInfo"},
		{name: "--server without TLS", info: execInfoOf(apiVersion, "http://a/c1"), args: []string{"--server=http://a"}, want: "no https URL"},
		{name: "another server", info: execInfoOf(apiVersion, "https://example.com/c1"), args: []string{"--server=" + proxyAPI}, want: "no token is for it"},
		{name: "a longer host", info: execInfoOf(apiVersion, proxyAPI+".example.com/c1"), args: []string{"--server=" + proxyAPI}, want: "no token is for it"},
		{name: "a password", info: execInfoOf(apiVersion, proxyAPI+"@example.com/c1"), args: []string{"--server=" + proxyAPI}, want: "no token is for it"},
		{name: "a path that leads away", info: execInfoOf(apiVersion, proxyAPI+"/a/../../c1"), args: []string{"--server=" + proxyAPI + "/a"}, want: "no token is for it"},

		{name: "no token", info: good, args: []string{"--token-file=/nowhere"}, want: "mount a volume with a projected serviceAccountToken for audience " + identity.ProxyAPIAudience},
		{name: "a folder", info: good, args: []string{"--token-file=" + t.TempDir()}, want: "is no file"},
		{name: "a device", info: good, args: []string{"--token-file=/dev/zero"}, want: "is no file"},
		{name: "an empty file", info: good, token: "", want: "does not hold the token"},
		{name: "a large file", info: good, token: strings.Repeat("a", 1<<20), want: "does not hold the token"},
		{name: "a password in it", info: good, token: "secret", want: "does not hold the token"},
		{name: "two lines", info: good, token: "e30.e30\n.c2ln", want: "does not hold the token"},
		{name: "no claims", info: good, token: "e30.!.c2ln", want: "does not hold the token"},
		{name: "no end", info: good, token: claims{Audiences: []string{identity.ProxyAPIAudience}}, want: "does not hold the token"},
		{name: "another audience", info: good, token: claims{Audiences: []string{"https://kubernetes.default.svc"}, Expires: 1 << 40}, want: `is for ["https://kubernetes.default.svc"]: set audience ` + identity.ProxyAPIAudience},
		{name: "no audience", info: good, token: claims{Expires: 1 << 40}, want: "set audience " + identity.ProxyAPIAudience},
		{name: "expired", info: good, token: forProxyAPI(time.Unix(1000, 0)), want: "expired at 1970-01-01T00:16:40Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, ok := tc.token.(string)
			if tc.token == nil {
				tc.token = forProxyAPI(time.Now().Add(time.Hour))
			}
			if !ok {
				text = jwt(t, tc.token) + "\n"
			}
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := run(append([]string{"--token-file=" + file}, tc.args...), tc.info, &out)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || out.Len() > 0 {
					t.Errorf("got %q, error %v; want error %q", out.String(), err, tc.want)
				}
				if secret := strings.TrimSpace(text); err != nil && secret != "" && strings.Contains(err.Error(), secret) {
					t.Errorf("the error has the token: %v", err)
				}
				return
			}
			var got credential
			if err != nil || json.Unmarshal(out.Bytes(), &got) != nil || got.Status.Token != strings.TrimSpace(text) || got.APIVersion != apiVersion || got.Kind != kind {
				t.Errorf("got %q, error %v; want the token %s", out.String(), err, text)
			}
		})
	}
}

// TestExpiration has client-go ask for the token that the kubelet has made since, before the one
// that it has ends.
func TestExpiration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		begin := time.Now()
		if err := os.WriteFile(file, []byte(jwt(t, forProxyAPI(begin.Add(time.Hour)))), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct{ at, want time.Duration }{{0, 30 * time.Minute}, {30 * time.Minute, 45 * time.Minute}, {48 * time.Minute, 54 * time.Minute}} {
			time.Sleep(time.Until(begin.Add(test.at)))
			var out bytes.Buffer
			if err := run([]string{"--token-file=" + file}, execInfoOf(apiVersion, proxyAPI+"/c1"), &out); err != nil {
				t.Fatal(err)
			}
			var got credential
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || !got.Status.Expires.Equal(begin.Add(test.want)) {
				t.Errorf("after %v the credential is %s, want it to end after %v", test.at, out.String(), test.want)
			}
		}
	})
}

// TestClientGo has the library that controllers read ClusterProfiles with start this program.
func TestClientGo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	var good atomic.Pointer[string]
	renew := func(id string) {
		c := forProxyAPI(time.Now().Add(time.Hour))
		c.ID = id
		token := jwt(t, c)
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		good.Store(&token)
	}
	renew("first")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+*good.Load() || r.URL.Path != "/c1/version" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"gitVersion":"v1.2.3"}`))
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config, err := access.NewFromFile("../../examples/cluster-profile/providers.json")
	if err != nil {
		t.Fatal(err)
	}
	profile := &v1alpha1.ClusterProfile{Status: v1alpha1.ClusterProfileStatus{AccessProviders: []v1alpha1.AccessProvider{
		{Name: config.Providers[0].Name, Cluster: clientcmdv1.Cluster{Server: server.URL + "/c1", CertificateAuthorityData: ca}},
	}}}
	plugin := config.Providers[0].ExecConfig
	plugin.Command, plugin.Args, plugin.Env = self, []string{"--server=" + server.URL, "--token-file=" + file}, []clientcmdapi.ExecEnvVar{{Name: asPlugin, Value: "1"}}
	cfg, err := config.BuildConfigFromCP(profile)
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := client.ServerVersion(); err != nil || version.GitVersion != "v1.2.3" {
		t.Fatalf("the cluster's version is %v, %v", version, err)
	}
	// The first token was revoked: the answer to it has client-go ask for the next one.
	renew("second")
	if _, err := client.ServerVersion(); err == nil {
		t.Error("a revoked token was taken")
	}
	if _, err := client.ServerVersion(); err != nil {
		t.Errorf("with the next token: %v", err)
	}
}

// TestInstall has an init container copy the program to a volume, where a container starts it.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the init container may be started again
		if err := run([]string{"--install=" + dir}, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Fatalf("the folder has %v, %v; want %s", entries, err, name)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
	cmd.Env = []string{asPlugin + "=1"}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), name+": KUBERNETES_EXEC_INFO is not set") {
		t.Errorf("it says %q, %v", out, err)
	}
	if err := run([]string{"--install=" + filepath.Join(dir, "none")}, "", nil); err == nil {
		t.Error("it was copied into a folder that does not exist")
	}
}
