//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

const busybox = "/bin/busybox"

// writeImages packs what pods run.
func (l *Lab) writeImages(binary string) (images, error) {
	if err := os.MkdirAll(l.imageDir(), 0o755); err != nil {
		return nil, err
	}
	files := images{}
	labnode, err := os.ReadFile(l.extra.path("labnode"))
	if err != nil {
		return nil, err
	}
	coredns, err := os.ReadFile(l.extra.path("coredns"))
	if err != nil {
		return nil, err
	}
	web, err := shell()
	if err != nil {
		return nil, err
	}
	program := oci.File{Path: "/labnode", Content: labnode}
	for name, image := range map[string]image{
		"pause":   plain(pauseImage, []string{"/labnode", "pause"}, program),
		"coredns": plain(corednsImage, []string{"/coredns"}, oci.File{Path: "/coredns", Content: coredns}),
		"web":     plain(webImage, []string{"/labnode", "web"}, append(web, program)...),
	} {
		files[name] = filepath.Join(l.imageDir(), name+".tar")
		if err := image.write(files[name]); err != nil {
			return nil, err
		}
	}
	files["addon"] = filepath.Join(l.imageDir(), "addon.tar")
	return files, PackAddon(binary, addonTag, files["addon"])
}

// image is an image of the lab, whose layer is not compressed.
type image struct {
	name   string
	config v1.Config
	files  []oci.File
}

func plain(name string, entrypoint []string, files ...oci.File) image {
	return image{name, v1.Config{Entrypoint: entrypoint, Env: []string{"PATH=/bin"}}, files}
}

// write writes the image as an archive for LoadImage.
func (i image) write(file string) error {
	var layer bytes.Buffer
	if err := oci.Tar(&layer, i.files, time.Unix(0, 0)); err != nil {
		return fmt.Errorf("packing image %s: %w", i.name, err)
	}
	packed, err := oci.Image(runtime.GOARCH, time.Unix(0, 0), i.config, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		return fmt.Errorf("packing image %s: %w", i.name, err)
	}
	tag, err := name.NewTag(i.name)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, packed)
}

// PackAddon packs a static binary of the addon as the image that the lab's chart
// values name, but for the tag.
func PackAddon(binary, tag, file string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	return image{addonImage + ":" + tag, oci.Addon(), []oci.File{{Path: "/cluster-proxy", Content: content}}}.write(file)
}

// shell is busybox and a link for each of its tools.
func shell() ([]oci.File, error) {
	content, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("asking busybox for its tools: %w", err)
	}
	files := []oci.File{{Path: busybox, Content: content}}
	for _, tool := range strings.Fields(string(list)) {
		if tool != "busybox" && !strings.Contains(tool, "/") {
			files = append(files, oci.File{Path: "/bin/" + tool, Link: "busybox"})
		}
	}
	return files, nil
}

// LoadImage imports an archive into every cluster of a lab with nodes.
func (l *Lab) LoadImage(ctx context.Context, file string) error {
	for _, c := range l.clusters() {
		if err := c.loadImage(ctx, l, file); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) loadImage(ctx context.Context, l *Lab, file string) error {
	archive, err := os.Open(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	cmd, err := l.nodes.Command(ctx, c.Name, "ctr", "-n", "k8s.io", "images", "import", "--snapshotter", snapshotter(l.dir), "-")
	if err != nil {
		return err
	}
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s on %s: %w: %s", filepath.Base(file), c.Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
