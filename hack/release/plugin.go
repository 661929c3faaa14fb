package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

const plugin = "kubectl-clusterproxy"

// platforms are those that kubectl is published for and the plugin is built for.
var platforms = []string{"linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// plugins writes an archive of the plugin for each platform, and clusterproxy.yaml, the manifest with which krew
// installs them (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
func (b *builder) plugins() error {
	m := newManifest(b.version)
	for _, p := range b.platforms {
		system, arch, _ := strings.Cut(p, "/")
		program, err := b.source.program("./cmd/"+plugin, system, arch, "-X open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/diagnose.release=v"+b.version)
		if err != nil {
			return err
		}
		if err := b.writeSBOM(plugin+"-"+system+"-"+arch, program); err != nil {
			return err
		}
		archived, err := b.packPlugin(system, program)
		if err != nil {
			return err
		}
		if err := b.write(archiveName(b.version, system, arch), archived); err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, newPlatform(b.url, b.version, system, arch, archived))
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return b.write("clusterproxy.yaml", text)
}

// executable is the name of a program's file on a platform, which begins with its system.
func executable(program, platform string) string {
	if strings.HasPrefix(platform, "windows") {
		return program + ".exe"
	}
	return program
}

// packPlugin makes an archive: the plugin, its license, and what kubectl completes arguments with.
func (b *builder) packPlugin(system string, program []byte) ([]byte, error) {
	license, err := os.ReadFile(filepath.Join(b.source.dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	complete, err := os.ReadFile(filepath.Join(b.source.dir, "cmd", plugin, "kubectl_complete-clusterproxy"))
	if err != nil {
		return nil, err
	}
	return zipped([]oci.File{
		{Path: executable(plugin, system), Content: program}, {Path: "LICENSE", Content: license, Mode: 0o644}, {Path: "kubectl_complete-clusterproxy", Content: complete},
	}, b.source.created)
}

func archiveName(version, system, arch string) string {
	return fmt.Sprintf("%s_v%s_%s_%s.tar.gz", plugin, version, system, arch)
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

func newManifest(version string) manifest {
	return manifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "clusterproxy"},
		Spec: spec{
			Version: "v" + version, Homepage: repository,
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

func newPlatform(base, version, system, arch string, archived []byte) platform {
	return platform{
		Selector: selector{MatchLabels: map[string]string{"os": system, "arch": arch}},
		URI:      base + "/v" + version + "/" + archiveName(version, system, arch),
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(archived)),
		Bin:      executable(plugin, system),
	}
}
