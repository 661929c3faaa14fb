package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Names in dist/.
const (
	sums       = "SHA256SUMS"
	layouts    = "oci" // below it: an OCI layout by the name of each repository of the registry
	statements = "provenance.intoto.json"
	publicKey  = "cluster-proxy.pub"
)

type builder struct {
	checkout, dist, version, registry, url, key string
	archs, platforms                            []string
	out                                         io.Writer

	source source
	signer signer
}

var versionForm = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// build writes dist/.
func (b *builder) build() error {
	if err := b.prepare(); err != nil {
		return err
	}
	index, err := b.source.image(b.archs, func(command, arch string, program []byte) error { return b.writeSBOM(command+"-linux-"+arch, program) })
	if err != nil {
		return err
	}
	index = mutate.Annotations(index, b.annotations("cluster-proxy", nil)).(v1.ImageIndex)
	image := pushed{repository: "cluster-proxy", tag: "v" + b.version, appendTo: func(l layout.Path, o layout.Option) error { return l.AppendIndex(index, o) }}
	if image.digest, err = index.Digest(); err != nil {
		return err
	}
	packed, err := b.chart(image.digest)
	if err != nil {
		return err
	}
	chart := pushed{repository: "charts/" + chartName, tag: b.version, appendTo: func(l layout.Path, o layout.Option) error { return l.AppendImage(packed.image, o) }}
	if chart.digest, err = packed.image.Digest(); err != nil {
		return err
	}
	if err := b.write(fmt.Sprintf("%s-%s.tgz", chartName, b.version), packed.archive); err != nil {
		return err
	}
	if err := b.write("values-production.yaml", packed.production); err != nil {
		return err
	}
	if err := b.plugins(); err != nil {
		return err
	}
	return b.finish(image, chart)
}

// prepare checks what the release is to be made of, and makes its folder.
func (b *builder) prepare() (err error) {
	if b.version = strings.TrimPrefix(b.version, "v"); !versionForm.MatchString(b.version) {
		return fmt.Errorf("version %q: want the form 1.2.3 or 1.2.3-alpha.1", b.version)
	}
	if b.registry == "" {
		return errors.New("name the registry, which the chart is to pull images from: it does so by default then")
	}
	if b.source, err = openSource(b.checkout); err != nil {
		return err
	}
	if err := b.source.clean(); err != nil {
		return err
	}
	if b.signer, err = readSigner(b.key); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.dist), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(b.dist, 0o755); err != nil {
		return fmt.Errorf("making the folder of the release, which must not be there (make clean removes it): %w", err)
	}
	return nil
}

// pushed is what goes to a repository of the registry.
type pushed struct {
	repository, tag string
	digest          v1.Hash
	appendTo        func(layout.Path, layout.Option) error
}

// finish writes provenance, what goes to the registry, and the sums of all files, and signs them.
func (b *builder) finish(artifacts ...pushed) error {
	subjects, err := b.subjects(artifacts)
	if err != nil {
		return err
	}
	statement, err := b.provenance(subjects)
	if err != nil {
		return err
	}
	signed, err := b.signer.envelope(statement)
	if err != nil {
		return err
	}
	if err := b.write(statements, signed); err != nil {
		return err
	}
	for _, a := range artifacts {
		if err := b.layout(a, signed); err != nil {
			return err
		}
	}
	return b.writeSums()
}

// annotations are those of a manifest.
func (b *builder) annotations(title string, more map[string]string) map[string]string {
	said := map[string]string{
		"org.opencontainers.image.title": title, "org.opencontainers.image.version": b.version, "org.opencontainers.image.source": repository,
		"org.opencontainers.image.revision": b.source.commit, "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created": b.source.created.Format("2006-01-02T15:04:05Z"),
	}
	maps.Copy(said, more)
	return said
}

func named(tag string) layout.Option { return layout.WithAnnotations(map[string]string{refName: tag}) }

// layout writes an OCI layout: something with a digest, its signature and its provenance.
func (b *builder) layout(a pushed, statement []byte) error {
	dir := filepath.Join(b.dist, layouts, filepath.FromSlash(a.repository))
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := a.appendTo(l, named(a.tag)); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%s: %s\n", dir, a.digest)
	if b.signer.key == nil {
		return nil
	}
	signature, err := b.signer.signature(a.digest)
	if err != nil {
		return err
	}
	if err := l.AppendImage(signature, named(besideTag(a.digest, "sig"))); err != nil {
		return err
	}
	provenance, err := attestation(statement)
	if err != nil {
		return err
	}
	return l.AppendImage(provenance, named(besideTag(a.digest, "att")))
}

// subjects are the files that are there, and what goes to the registry.
func (b *builder) subjects(artifacts []pushed) (found []subject, err error) {
	files, err := filesOf(b.dist)
	for _, f := range files {
		found = append(found, subject{f.Path, map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(f.Content))}})
	}
	for _, a := range artifacts {
		found = append(found, subject{path.Join(b.registry, a.repository), map[string]string{"sha256": a.digest.Hex}})
	}
	return found, err
}

// writeSums writes the sums of all files, and their signature.
func (b *builder) writeSums() error {
	if b.signer.key != nil {
		key, err := b.signer.public()
		if err != nil {
			return err
		}
		if err := b.write(publicKey, key); err != nil {
			return err
		}
	}
	files, err := filesOf(b.dist)
	if err != nil {
		return err
	}
	var list []byte
	for _, f := range files {
		list = fmt.Appendf(list, "%x  %s\n", sha256.Sum256(f.Content), f.Path)
	}
	if err := b.write(sums, list); err != nil {
		return err
	}
	if b.signer.key == nil {
		fmt.Fprintln(b.out, "nothing is signed: no key was named")
		return nil
	}
	signature, err := b.signer.sign(list)
	if err != nil {
		return err
	}
	return b.write(sums+".sig", signature)
}

func (b *builder) writeSBOM(name string, program []byte) error {
	list, err := sbom(name, b.version, program, b.source.created)
	if err != nil {
		return err
	}
	return b.write(name+".spdx.json", list)
}

func (b *builder) write(name string, content []byte) error {
	fmt.Fprintf(b.out, "%s: %d KB\n", filepath.Join(b.dist, name), (len(content)+1023)>>10)
	return os.WriteFile(filepath.Join(b.dist, name), content, 0o644)
}
