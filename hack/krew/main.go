// Command krew packs the kubectl plugin for all platforms into bin/krew: an archive
// for each, and clusterproxy.yaml, the manifest with which krew installs them
// (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/). To try it:
//
//	kubectl krew install --manifest=bin/krew/clusterproxy.yaml --archive=bin/krew/<archive of your platform>
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const binary = "kubectl-clusterproxy"

// platforms are those that kubectl is published for and the plugin is built for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

func main() {
	release := flag.String("version", "", "version of the plugin; without it, appVersion of the hub's chart")
	base := flag.String("url", "https://github.com/open-cluster-management-io/cluster-proxy/releases/download", "where releases are published: archives are at URL/VERSION/ARCHIVE")
	out := flag.String("out", "bin/krew", "folder to write into")
	only := flag.String("platforms", strings.Join(platforms, ","), "OS/ARCHITECTURE, comma separated")
	flag.Parse()
	if err := run(*release, *base, *out, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(release, base, out string, platforms []string) error {
	if release == "" {
		var err error
		if release, err = chartVersion("charts/cluster-proxy/Chart.yaml"); err != nil {
			return err
		}
	}
	if !versionForm.MatchString(release) {
		return fmt.Errorf("version %q: krew wants the form v1.2.3", release)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cluster-proxy-krew-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := newManifest(release)
	for _, p := range platforms {
		system, arch, _ := strings.Cut(p, "/")
		program, err := build(filepath.Join(dir, system+"-"+arch), release, system, arch)
		if err != nil {
			return err
		}
		archived, err := pack(system, program)
		if err != nil {
			return err
		}
		name := archiveName(release, system, arch)
		if err := os.WriteFile(filepath.Join(out, name), archived, 0o644); err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, newPlatform(base, release, system, arch, archived))
		fmt.Printf("%s: %d MB\n", filepath.Join(out, name), len(archived)>>20)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "clusterproxy.yaml"), text, 0o644)
}

var versionForm = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// chartVersion is the version whose images the hub's chart pulls.
func chartVersion(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return "", fmt.Errorf("parsing %s: %w", file, err)
	}
	return "v" + strings.TrimPrefix(chart.AppVersion, "v"), nil
}

func build(file, release, system, arch string) ([]byte, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/diagnose.release="+release, "-o", file, "./cmd/"+binary)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building for %s/%s: %w\n%s", system, arch, err, output)
	}
	return os.ReadFile(file)
}

// programName is the plugin's file on a system.
func programName(system string) string {
	if system == "windows" {
		return binary + ".exe"
	}
	return binary
}

// pack makes an archive: the plugin, its license, and what kubectl completes arguments with. It has no times, so
// that a later build has the same sum.
func pack(system string, program []byte) ([]byte, error) {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return nil, err
	}
	complete, err := os.ReadFile("cmd/" + binary + "/kubectl_complete-clusterproxy")
	if err != nil {
		return nil, err
	}
	var archived bytes.Buffer
	compressed := gzip.NewWriter(&archived)
	files := tar.NewWriter(compressed)
	for _, f := range []struct {
		name    string
		mode    int64
		content []byte
	}{{programName(system), 0o755, program}, {"LICENSE", 0o644, license}, {"kubectl_complete-clusterproxy", 0o755, complete}} {
		if err := files.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := io.Copy(files, bytes.NewReader(f.content)); err != nil {
			return nil, err
		}
	}
	if err := files.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return archived.Bytes(), err
}

func archiveName(release, system, arch string) string {
	return fmt.Sprintf("%s_%s_%s_%s.tar.gz", binary, release, system, arch)
}

// manifest is krew's Plugin.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       spec              `json:"spec"`
}

type spec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Caveats          string     `json:"caveats"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector selector `json:"selector"`
	URI      string   `json:"uri"`
	SHA256   string   `json:"sha256"`
	Bin      string   `json:"bin"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

func newManifest(release string) manifest {
	return manifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "clusterproxy"},
		Spec: spec{
			Version: release, Homepage: "https://github.com/open-cluster-management-io/cluster-proxy",
			ShortDescription: "Reach managed clusters of an OCM hub",
			Description: `Reach the managed clusters of an Open Cluster Management hub that has the addon
cluster-proxy, with your own rights: contexts for kubectl, a local port, which
clusters can be reached and why others cannot.
`,
			Caveats: `The hub needs the addon cluster-proxy, and you a right to use it there:
ClusterRole cluster-proxy-user or cluster-proxy-viewer.
`,
		},
	}
}

func newPlatform(base, release, system, arch string, archived []byte) platform {
	return platform{
		Selector: selector{MatchLabels: map[string]string{"os": system, "arch": arch}},
		URI:      base + "/" + release + "/" + archiveName(release, system, arch),
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(archived)),
		Bin:      programName(system),
	}
}
