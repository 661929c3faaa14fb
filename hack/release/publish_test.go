package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// publishedWithCredentials publishes to a registry that wants a login, with what docker, podman or Helm has stored.
func publishedWithCredentials(t *testing.T, dist string) {
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "jane" || password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	right := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("jane:secret")))
	const other = `{"auths":{"other.example.com":{"auth":"YTpi"}}}`
	for name, test := range map[string]struct {
		stored map[string]string // contents by file of the user's folder
		env    string            // variable that names the file
		want   string
	}{
		"nothing":                  {want: "helm registry login 127.0.0.1:"},
		"docker":                   {stored: map[string]string{".docker/config.json": right}},
		"podman":                   {stored: map[string]string{".config/containers/auth.json": right}},
		"Helm":                     {stored: map[string]string{".config/helm/registry/config.json": right}},
		"Helm, at another place":   {stored: map[string]string{"helm.json": right}, env: "HELM_REGISTRY_CONFIG"},
		"Helm, docker for another": {stored: map[string]string{".config/helm/registry/config.json": right, ".docker/config.json": other}},
		"Helm for another":         {stored: map[string]string{".config/helm/registry/config.json": other}, want: "401"},
		"Helm, not JSON":           {stored: map[string]string{".config/helm/registry/config.json": "{"}, want: "registry/config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			for _, variable := range []string{"REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "HELM_REGISTRY_CONFIG", "HELM_CONFIG_HOME"} {
				t.Setenv(variable, "")
			}
			t.Setenv("HOME", home)
			t.Setenv("DOCKER_CONFIG", filepath.Join(home, ".docker")) // its library remembers the folder of the first home
			t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
			for file, content := range test.stored {
				file = filepath.Join(home, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				if test.env != "" {
					t.Setenv(test.env, file)
				}
			}
			err := publish(t.Context(), dist, host+"/"+strconv.Itoa(len(name)), io.Discard)
			if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}
