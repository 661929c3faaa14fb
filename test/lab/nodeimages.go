//go:build linux

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

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
	for name, image := range map[string]oci.Image{
		"pause":   plain(pauseImage, []string{"/labnode", "pause"}, program),
		"coredns": plain(corednsImage, []string{"/coredns"}, oci.File{Path: "/coredns", Content: coredns}),
		"web":     plain(webImage, []string{"/labnode", "web"}, append(web, program)...),
	} {
		files[name] = filepath.Join(l.imageDir(), name+".tar")
		if err := writeImage(files[name], image); err != nil {
			return nil, err
		}
	}
	files["addon"] = filepath.Join(l.imageDir(), "addon.tar")
	return files, PackAddon(binary, addonTag, files["addon"])
}

func plain(name string, entrypoint []string, files ...oci.File) oci.Image {
	return oci.Image{Name: name, Entrypoint: entrypoint, Env: []string{"PATH=/bin"}, Uncompressed: true,
		Variants: []oci.Variant{{Arch: runtime.GOARCH, Files: files}}}
}

func writeImage(file string, image oci.Image) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := image.Write(out); err != nil {
		return err
	}
	return out.Close()
}

// PackAddon packs a static binary of the addon as the image that the lab's chart
// values name, but for the tag.
func PackAddon(binary, tag, file string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	image := oci.Addon(addonImage + ":" + tag)
	image.Uncompressed = true
	image.Variants = []oci.Variant{oci.AddonVariant(runtime.GOARCH, content)}
	return writeImage(file, image)
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
