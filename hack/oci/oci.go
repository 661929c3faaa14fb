package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Image is what to write. Every variant has one layer.
type Image struct {
	// Name is the whole reference by which the image is known once imported,
	// for example "quay.io/org/name:v1".
	Name string
	// Created is the time of the image and of every file in it.
	Created    time.Time
	User       string
	Entrypoint []string
	// Cmd are the arguments of Entrypoint unless a container has its own.
	Cmd      []string
	Env      []string
	Labels   map[string]string
	Variants []Variant
	// Uncompressed leaves layers as they are, which is faster for an image that
	// goes nowhere.
	Uncompressed bool
}

// Variant is the image for one architecture, as Go names it.
type Variant struct {
	Arch  string
	Files []File
}

// File is a file or, with Link, a symbolic link. Folders above it are made.
type File struct {
	Path    string
	Content []byte
	Link    string
	// Mode is 0755 unless set.
	Mode int64
}

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// blobs are the parts of an archive by digest.
type blobs map[string][]byte

func (b blobs) add(mediaType string, content []byte) descriptor {
	digest := digestOf(content)
	b[digest] = content
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(content)}
}

func (b blobs) addJSON(mediaType string, value any) (descriptor, error) {
	raw, err := json.Marshal(value)
	return b.add(mediaType, raw), err
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// Write writes the image as an archive in the OCI image layout.
func (i Image) Write(w io.Writer) error {
	if i.Name == "" || len(i.Variants) == 0 {
		return fmt.Errorf("writing image %q: it needs a name and a variant", i.Name)
	}
	parts := blobs{}
	var manifests []descriptor
	for _, v := range i.Variants {
		manifest, err := i.variant(v, parts)
		if err != nil {
			return fmt.Errorf("writing image %q for %s: %w", i.Name, v.Arch, err)
		}
		manifests = append(manifests, manifest)
	}
	top, err := parts.addJSON(indexType, map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests})
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(path.Base(i.Name), ":")
	top.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{top}})
	if err != nil {
		return err
	}
	files := []File{{Path: "oci-layout", Content: []byte(`{"imageLayoutVersion":"1.0.0"}`), Mode: 0o644}, {Path: "index.json", Content: index, Mode: 0o644}}
	for digest, content := range parts {
		files = append(files, File{Path: "blobs/" + strings.Replace(digest, ":", "/", 1), Content: content, Mode: 0o644})
	}
	return writeTar(w, files, i.Created)
}

// variant adds the parts of one variant.
func (i Image) variant(v Variant, parts blobs) (descriptor, error) {
	var plain bytes.Buffer
	if err := writeTar(&plain, v.Files, i.Created); err != nil {
		return descriptor{}, err
	}
	diffID := digestOf(plain.Bytes())
	layer, mediaType := plain.Bytes(), layerType
	if !i.Uncompressed {
		var packed bytes.Buffer
		zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return descriptor{}, err
		}
		if _, err := zip.Write(plain.Bytes()); err != nil {
			return descriptor{}, err
		}
		if err := zip.Close(); err != nil {
			return descriptor{}, err
		}
		layer, mediaType = packed.Bytes(), layerType+"+gzip"
	}
	created := i.Created.UTC().Format(time.RFC3339)
	process := map[string]any{"User": i.User, "Entrypoint": i.Entrypoint, "Env": i.Env, "WorkingDir": "/", "Labels": i.Labels}
	if i.Cmd != nil {
		process["Cmd"] = i.Cmd
	}
	config, err := parts.addJSON(configType, map[string]any{
		"architecture": v.Arch, "os": "linux", "created": created,
		"config":  process,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{diffID}},
		"history": []map[string]any{{"created": created, "created_by": "hack/image"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	manifest, err := parts.addJSON(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{parts.add(mediaType, layer)},
	})
	manifest.Platform = &platform{Architecture: v.Arch, OS: "linux"}
	return manifest, err
}

// writeTar writes files, and the folders above them, in the order of their
// names.
func writeTar(w io.Writer, files []File, created time.Time) error {
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
