// Package oci packs files as container images without a container engine.
//
// The same files give the same bytes, on any machine: entries are sorted, carry
// one time and no owner, and nothing of the machine gets in.
package oci

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is a file or, with Link, a symbolic link. Folders above it are made.
type File struct {
	Path    string
	Content []byte
	Link    string
	// Mode is 0755 unless set.
	Mode int64
}

// Addon is the configuration of the addon's image, which holds static programs
// alone: no shell, and a user that is not root.
func Addon() v1.Config {
	return v1.Config{User: "65532:65532", Entrypoint: []string{"/cluster-proxy"}, Labels: map[string]string{
		"org.opencontainers.image.title":    "cluster-proxy",
		"org.opencontainers.image.source":   "https://github.com/open-cluster-management-io/cluster-proxy",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}}
}

// Image returns the image of one layer for an architecture, as Go names it.
func Image(arch string, created time.Time, config v1.Config, layer v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created.UTC()}, CreatedBy: "hack/oci"}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	config.WorkingDir = "/"
	file.Architecture, file.OS, file.Created, file.Config = arch, "linux", v1.Time{Time: created.UTC()}, config
	return mutate.ConfigFile(image, file)
}

// Tar writes files, and the folders above them, in the order of their names.
func Tar(w io.Writer, files []File, created time.Time) error {
	headers := map[string]*tar.Header{}
	contents := map[string][]byte{}
	for _, file := range files {
		name := strings.TrimPrefix(path.Clean("/"+file.Path), "/")
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			headers[dir+"/"] = &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}
		}
		mode := file.Mode
		if mode == 0 {
			mode = 0o755
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(file.Content))}
		if file.Link != "" {
			header = &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: file.Link, Mode: 0o777}
		}
		if headers[name] != nil {
			return fmt.Errorf("%q is there twice", name)
		}
		headers[name], contents[name] = header, file.Content
	}
	archive := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		header := headers[name]
		header.ModTime, header.Format = created, tar.FormatPAX
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(contents[name]); err != nil {
			return err
		}
	}
	return archive.Close()
}
