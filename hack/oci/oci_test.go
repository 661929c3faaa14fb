package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, image Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := image.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read gives the files of an archive and checks that each blob has the digest
// that its name says.
func read(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Uname != "" || header.ModTime.Unix() != 1000 {
			t.Errorf("%s carries an owner or a time of its own: %+v", header.Name, header)
		}
		if digest, ok := strings.CutPrefix(header.Name, "blobs/sha256/"); ok && digest != "" && digestOf(content) != "sha256:"+digest {
			t.Errorf("%s has digest %s; want the one that is its name", header.Name, digestOf(content))
		}
		files[header.Name] = content
	}
}

func addon() Image {
	image := Addon("example.com/cluster-proxy:v1")
	image.Created = time.Unix(1000, 0)
	image.Variants = []Variant{AddonVariant("amd64", []byte("one")), AddonVariant("arm64", []byte("two"))}
	return image
}

func TestWriteIsReproducible(t *testing.T) {
	if !bytes.Equal(write(t, addon()), write(t, addon())) {
		t.Error("the same image was written in two ways")
	}
}

// TestImage follows the archive from its index to the files in its layers.
func TestImage(t *testing.T) {
	files := read(t, write(t, addon()))
	follow := func(raw []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(d descriptor) []byte { return files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)] }
	var top, index struct{ Manifests []descriptor }
	follow(files["index.json"], &top)
	if name := top.Manifests[0].Annotations["io.containerd.image.name"]; name != "example.com/cluster-proxy:v1" {
		t.Errorf("the image is named %q; want example.com/cluster-proxy:v1", name)
	}
	follow(blob(top.Manifests[0]), &index)
	var archs []string
	for i, content := range []string{"one", "two"} {
		d := index.Manifests[i]
		archs = append(archs, d.Platform.OS+"/"+d.Platform.Architecture)
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		follow(blob(d), &manifest)
		var config struct {
			Architecture string
			Config       struct {
				User       string
				Entrypoint []string
			}
			RootFS struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		follow(blob(manifest.Config), &config)
		if config.Config.User != "65532:65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/cluster-proxy"}) {
			t.Errorf("the image runs %v as user %q", config.Config.Entrypoint, config.Config.User)
		}
		unzip, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(unzip)
		if err != nil || !cmp.Equal(config.RootFS.DiffIDs, []string{digestOf(layer)}) {
			t.Errorf("the layer is not the one that the configuration names: %v", err)
		}
		if diff := cmp.Diff(map[string][]byte{"cluster-proxy": []byte(content)}, read(t, layer)); diff != "" {
			t.Errorf("there is something else in the image:\n%s", diff)
		}
	}
	if !cmp.Equal(archs, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("variants are %v; want linux/amd64 and linux/arm64", archs)
	}
}

func TestWriteRefuses(t *testing.T) {
	twice := addon()
	twice.Variants[0].Files = append(twice.Variants[0].Files, File{Path: "cluster-proxy"})
	for name, image := range map[string]Image{"no name": {Variants: addon().Variants}, "no variant": {Name: "x:y"}, "the same file twice": twice} {
		if err := image.Write(io.Discard); err == nil {
			t.Errorf("%s: written all the same", name)
		}
	}
}
