package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

// architectures are those that the image is made for.
var architectures = []string{"amd64", "arm64", "ppc64le", "s390x"}

// refName is the annotation by which an OCI layout names what is in it.
const refName = "org.opencontainers.image.ref.name"

// commands are the programs in the image.
var commands = []string{"cluster-proxy", "clusterprofile-credentials"}

// image builds the addon's image for architectures. each sees each program.
func (s source) image(archs []string, each func(command, arch string, program []byte) error) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range archs {
		var files []oci.File
		for _, command := range commands {
			program, err := s.program("./cmd/"+command, "linux", arch, "")
			if err != nil {
				return nil, err
			}
			if err := each(command, arch, program); err != nil {
				return nil, err
			}
			files = append(files, oci.File{Path: "/" + command, Content: program})
		}
		layer, err := s.layer(files)
		if err != nil {
			return nil, err
		}
		image, err := oci.Image(arch, s.created, oci.Addon(), layer)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return index, nil
}

func (s source) layer(files []oci.File) (v1.Layer, error) {
	var plain bytes.Buffer
	if err := oci.Tar(&plain, files, s.created); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}

// packImage writes the image as an archive of an OCI layout, which containerd, podman, skopeo and kind load.
func packImage(name, file string, archs []string, start bool, out io.Writer) error {
	s, err := openSource(".")
	if err != nil {
		return err
	}
	var help string
	index, err := s.image(archs, func(command, arch string, program []byte) error {
		if !start || command != "cluster-proxy" {
			return nil
		}
		said, err := helpOf(arch, program, out)
		if err != nil {
			return err
		}
		if help != "" && help != said {
			return fmt.Errorf("the program for %s has another help than that for %s:\n%s", arch, archs[0], said)
		}
		help = said
		return nil
	})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cluster-proxy-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(path.Base(name), ":")
	if err := archive.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag, "io.containerd.image.name": name})); err != nil {
		return err
	}
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := oci.Tar(&packed, files, s.created); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s for %s, %d MB\n", file, name, strings.Join(archs, ", "), packed.Len()>>20)
	return os.WriteFile(file, packed.Bytes(), 0o644)
}

// filesOf reads all files below a folder.
func filesOf(dir string) (files []oci.File, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, oci.File{Path: name, Content: content, Mode: 0o644})
		return err
	})
	return files, err
}

// machines are the architectures as QEMU names them.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}

// helpOf starts a program and returns the help of its processes, which is the same for
// every architecture.
func helpOf(arch string, program []byte, out io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", "cluster-proxy-start-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, arch)
	if err := os.WriteFile(file, program, 0o755); err != nil {
		return "", err
	}
	command := []string{file}
	if arch != runtime.GOARCH {
		emulator := "qemu-" + machines[arch] + "-static"
		if _, err := exec.LookPath(emulator); err != nil {
			return "", fmt.Errorf("starting the program for %s: %w; run: apt-get install qemu-user-static", arch, err)
		}
		command = []string{emulator, file}
	}
	var help strings.Builder
	for _, process := range []string{"addon-manager", "proxy-server", "proxy-api", "proxy-agent"} {
		args := append(slices.Clone(command[1:]), process, "--help")
		output, err := exec.Command(command[0], args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("starting the %s for %s: %w\n%s", process, arch, err, output)
		}
		if !strings.Contains(string(output), "cluster-proxy "+process+" [flags]") {
			return "", fmt.Errorf("the %s for %s has no help:\n%s", process, arch, output)
		}
		help.Write(output)
	}
	fmt.Fprintf(out, "%s: started, %d lines of help\n", arch, strings.Count(help.String(), "\n"))
	return help.String(), nil
}
