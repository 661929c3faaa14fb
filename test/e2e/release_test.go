//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestRelease installs a release from a registry with one command and the chart's defaults, upgrades
// it to the next one, and installs that anew from a mirror when the registry is gone, by the two commands of
// docs/how-to/install-from-a-release.md: helm, and jane's first kubectl get pods. The nodes pull the images.
// The earlier release is of the commit before this one. It disturbs everything: the addon is gone for a while.
func TestRelease(t *testing.T) {
	long.Test(t)
	needNodes(t)
	releaseOnNodes(t)
	dir := t.TempDir()
	tool := filepath.Join(dir, "release")
	command(t, "../..", "go", "build", "-o", tool, "./hack/release")
	host, stop := serveRegistry(t)
	before := makeRelease(t, tool, "HEAD~1", "1.0.0-lab.1", host, filepath.Join(dir, "before"))
	now := makeRelease(t, tool, "HEAD", "1.0.0-lab.2", host, filepath.Join(dir, "now"))
	file := filepath.Join(dir, "now", "cluster-proxy-1.0.0-lab.2-mirror-linux-"+runtime.GOARCH)
	command(t, "../..", tool, "mirror", "-dist="+filepath.Join(dir, "now", "dist"), "-platform=linux/"+runtime.GOARCH)

	installed.Uninstall(t)
	t.Cleanup(func() {
		installed.Uninstall(t)
		installed.Reinstall(t)
	})
	install := func(what, host, version, digest string, more ...string) {
		t.Helper()
		began := time.Now()
		helm(t, append([]string{"upgrade", "--install", "cluster-proxy", "oci://" + host + "/charts/cluster-proxy", "--version=" + version, "--create-namespace", "--plain-http"}, more...)...)
		for _, cluster := range installed.Clusters {
			installed.AgentsHaveImage(t, cluster, host+"/cluster-proxy:v"+version+"@"+digest)
			suite.Eventually(t, cluster+" Available", func() error { return installed.AddonAvailable(t.Context(), cluster) })
		}
		available := time.Since(began)
		suite.Eventually(t, "the first requests", func() (err error) {
			if err := installed.FindEndpoints(t.Context()); err != nil {
				return err
			}
			for _, cluster := range installed.Clusters {
				err = errors.Join(err, installed.Reachable(t.Context(), cluster))
			}
			return err
		})
		t.Logf("%s: all clusters Available after %.0f s, reachable after %.0f s", what, available.Seconds(), time.Since(began).Seconds())
	}
	install("one command", host, "1.0.0-lab.1", before)
	install("upgrade", host, "1.0.0-lab.2", now, "--reset-then-reuse-values")
	stop()
	mirror, _ := serveRegistry(t)
	command(t, dir, file, mirror)
	installed.Uninstall(t)
	kubectl, env := installed.KubectlProgram("hub")
	jane := userKubeconfig(t, "jane")
	began := time.Now()
	helm(t, "upgrade", "--install", "cluster-proxy", "oci://"+mirror+"/charts/cluster-proxy", "--version=1.0.0-lab.2", "--create-namespace", "--plain-http",
		"--set=registry="+mirror, "--set=access.users={jane},waitForClustersSeconds=240")
	available := time.Since(began)
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+jane, "get", "pods",
		"--server="+installed.HubConfig().Host+"/apis/clusterproxy.open-cluster-management.io/v1alpha1/fleetviews/all/proxy")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("jane's first request: %v\n%s", err, out)
	}
	t.Logf("mirror: Available after 1 command and %.0f s, kubectl get pods after 2 and %.0f s:\n%s", available.Seconds(), time.Since(began).Seconds(), out)
	for _, cluster := range installed.Clusters {
		installed.AgentsHaveImage(t, cluster, mirror+"/cluster-proxy:v1.0.0-lab.2@"+now)
		if err := installed.AddonAvailable(t.Context(), cluster); err != nil {
			t.Errorf("helm has ended: %v", err)
		}
	}
}

// serveRegistry serves an empty registry on the loopback of this machine and of each node, and returns a
// path in it.
func serveRegistry(t *testing.T) (host string, stop func()) {
	t.Helper()
	here, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	t.Cleanup(func() { server.Close() })
	listeners := []net.Listener{here}
	for _, name := range append([]string{"hub"}, installed.Clusters...) {
		there, err := installed.Lab.Nodes().Listen(name, here.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, there)
	}
	for _, listener := range listeners {
		go func() { _ = server.Serve(listener) }()
	}
	return here.Addr().String() + "/ocm", func() { server.Close() }
}

// makeRelease makes and publishes a release of a commit for this machine's architecture, without the plugin. It returns the
// digest of the image.
func makeRelease(t *testing.T, tool, commit, version, host, dir string) string {
	t.Helper()
	command(t, "../..", "git", "clone", "-q", "--shared", ".", dir+"/source")
	command(t, dir+"/source", "git", "checkout", "-q", commit)
	dist := filepath.Join(dir, "dist")
	command(t, dir, tool, "build", "-source="+dir+"/source", "-dist="+dist, "-version="+version, "-registry="+host, "-arch="+runtime.GOARCH, "-platforms=")
	command(t, dir, tool, "publish", "-dist="+dist, "-registry="+host)
	content, err := os.ReadFile(filepath.Join(dist, "oci/cluster-proxy/index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(content, &index); err != nil {
		t.Fatal(err)
	}
	return index.Manifests[0].Digest.String()
}

// command runs a command in a folder.
func command(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("running %q: %w\n%s", argv, err, out))
	}
}
