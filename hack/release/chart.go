package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

const chartName = "cluster-proxy"

// digestAnnotation is the chart's annotation from which its templates take the digest of the image.
const digestAnnotation = "proxy.open-cluster-management.io/image-digest"

// chart is the chart as "helm package" and "helm push" make it, but for times and owners.
type chart struct {
	archive, production []byte // production are the values for more than a trial
	image               v1.Image
}

// chart packs the chart, with the registry and the digest of the image.
func (b *builder) chart(digest v1.Hash) (chart, error) {
	files, err := filesOf(filepath.Join(b.source.dir, "charts", chartName))
	if err != nil {
		return chart{}, err
	}
	var metadata, production []byte
	for i, f := range files {
		switch f.Path {
		case "Chart.yaml":
			content, err := setLines(f.Content, map[string]string{"version": b.version, "appVersion": b.version})
			if err != nil {
				return chart{}, fmt.Errorf("setting the version in Chart.yaml: %w", err)
			}
			// annotations are the last of Chart.yaml.
			metadata = fmt.Appendf(content, "  %s: %s\n  artifacthub.io/prerelease: %q\n  artifacthub.io/images: |\n    - name: cluster-proxy\n      image: %s/cluster-proxy:v%s@%s\n",
				digestAnnotation, digest, fmt.Sprint(strings.Contains(b.version, "-")), b.registry, b.version, digest)
			files[i].Content = metadata
		case "values-production.yaml":
			production = f.Content
		case "values.yaml":
			if files[i].Content, err = setLines(f.Content, map[string]string{"registry": b.registry}); err != nil {
				return chart{}, fmt.Errorf("values.yaml: %w", err)
			}
		}
		files[i].Path = path.Join(chartName, f.Path)
	}
	config, err := yaml.YAMLToJSONStrict(metadata)
	if err != nil {
		return chart{}, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	var said struct{ Description, Home string }
	if err := json.Unmarshal(config, &said); err != nil {
		return chart{}, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	packed, err := zipped(files, b.source.created)
	if err != nil {
		return chart{}, err
	}
	image, err := newArtifact("application/vnd.cncf.helm.config.v1+json", config, static.NewLayer(packed, "application/vnd.cncf.helm.chart.content.v1.tar+gzip"),
		b.annotations(chartName, map[string]string{"org.opencontainers.image.description": said.Description, "org.opencontainers.image.url": said.Home}))
	return chart{packed, production, image}, err
}

// setLines sets values of YAML, each of which has a line of its own at the margin. Comments stay.
func setLines(content []byte, values map[string]string) ([]byte, error) {
	for name, value := range values {
		line := regexp.MustCompile(`(?m)^` + name + `:.*$`)
		if n := len(line.FindAll(content, -1)); n != 1 {
			return nil, fmt.Errorf("%q has %d lines, want one", name, n)
		}
		content = line.ReplaceAllLiteral(content, []byte(name+": "+value))
	}
	return content, nil
}

// zipped is a .tar.gz of files.
func zipped(files []oci.File, created time.Time) ([]byte, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := oci.Tar(zip, files, created); err != nil {
		return nil, err
	}
	err = zip.Close()
	return packed.Bytes(), err
}

// artifact is a manifest with a configuration that is none of an image's.
type artifact struct {
	config, manifest []byte
	layer            v1.Layer
}

func newArtifact(configType types.MediaType, config []byte, layer v1.Layer, annotations map[string]string) (v1.Image, error) {
	described, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: annotations,
		Config: v1.Descriptor{MediaType: configType, Digest: digest, Size: size}, Layers: []v1.Descriptor{*described},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{config, manifest, layer})
}

func (a artifact) RawConfigFile() ([]byte, error)    { return a.config, nil }
func (a artifact) RawManifest() ([]byte, error)      { return a.manifest, nil }
func (artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a artifact) LayerByDigest(want v1.Hash) (partial.CompressedLayer, error) {
	if digest, err := a.layer.Digest(); err != nil || digest != want {
		return nil, fmt.Errorf("there is no layer %s", want)
	}
	return a.layer, nil
}
