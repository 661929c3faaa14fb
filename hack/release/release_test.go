package main

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	helmregistry "helm.sh/helm/v3/pkg/registry"
)

const version = "1.2.3-rc.4"

// TestMain makes this program the mirror that a test has made of it.
func TestMain(m *testing.M) {
	if content, err := appended(); err == nil {
		content.Close()
		main()
		return
	}
	os.Exit(m.Run())
}

// checkout makes a checkout of this chart and of programs that compile at once.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := []byte("package main\n\nfunc main() {}\n")
	read := func(file string) []byte {
		content, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	for file, content := range map[string][]byte{
		"go.mod":                    []byte("module open-cluster-management.io/cluster-proxy\n\ngo 1.26\n"),
		"LICENSE":                   read("LICENSE"),
		"cmd/cluster-proxy/main.go": program, "cmd/clusterprofile-credentials/main.go": program, "cmd/kubectl-clusterproxy/main.go": program,
		"cmd/kubectl-clusterproxy/kubectl_complete-clusterproxy": read("cmd/kubectl-clusterproxy/kubectl_complete-clusterproxy"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "charts"), os.DirFS("../../charts")); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, `git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm a --date=2001-02-03T04:05:06Z`)
	return dir
}

// shell runs commands in a folder and returns what they print.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := try(t, dir, script)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

func try(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// release builds one of a checkout, and returns its folder.
func release(t *testing.T, checkout, registry, key string) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	b := builder{
		checkout: checkout, dist: dist, version: version, registry: registry, url: "https://example.com", key: key,
		archs: []string{"amd64", "arm64"}, platforms: []string{"linux/amd64"}, out: io.Discard,
	}
	if err := b.build(); err != nil {
		t.Fatal(err)
	}
	return dist
}

// startRegistry starts a registry and returns a path in it.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/ocm"
}

func newKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "release.key")
	shell(t, ".", "openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "+file)
	return file
}

// blocks are the commands of a page below a mark.
func blocks(t *testing.T, page, mark string, names *strings.Replacer) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/how-to", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "<!-- run in "+mark+" -->\n")[1:] {
		var block strings.Builder
		for line := range strings.Lines(strings.TrimPrefix(part, "\n")) {
			command, ok := strings.CutPrefix(line, "    ")
			if !ok {
				break
			}
			block.WriteString(names.Replace(command))
		}
		found = append(found, block.String())
	}
	return found
}

// TestRelease makes a release in two folders, publishes it, and does with it what users do.
func TestRelease(t *testing.T) {
	host, key := startRegistry(t), newKey(t)
	first := checkout(t)
	dist := release(t, first, host, key)
	list, err := os.ReadFile(filepath.Join(dist, sums))
	if err != nil {
		t.Fatal(err)
	}

	t.Run("the same from another folder", func(t *testing.T) {
		second := filepath.Join(t.TempDir(), "elsewhere")
		t.Setenv("GOAMD64", "v3")
		t.Setenv("GOFIPS140", "latest")
		shell(t, first, "git clone -q . "+second)
		if again, err := os.ReadFile(filepath.Join(release(t, second, host, key), sums)); err != nil || !bytes.Equal(list, again) {
			t.Errorf("%v; the sums differ:\n%s\n%s", err, list, again)
		}
	})
	t.Run("layouts are whole", func(t *testing.T) {
		index, err := layout.ImageIndexFromPath(filepath.Join(dist, layouts, "cluster-proxy"))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index, validate.Fast); err != nil {
			t.Error(err)
		}
		if got, want := filesOfImage(t, index), []string{"cluster-proxy", "clusterprofile-credentials"}; !slices.Equal(got, want) {
			t.Errorf("the image has files %q, want %q", got, want)
		}
	})
	var out bytes.Buffer
	for range 2 { // the second time everything is there
		if err := publish(t.Context(), dist, host, &out); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("the chart in the registry has the image in the registry", func(t *testing.T) {
		images := pulled(t, dist, host)
		if len(images) == 0 {
			t.Error("the chart has no image")
		}
		for _, image := range images {
			ref, err := name.NewDigest(image)
			if err != nil {
				t.Fatalf("the chart has an image without a digest: %v", err)
			}
			index, err := remote.Index(ref)
			if err != nil {
				t.Fatal(err)
			}
			if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
				t.Errorf("%v; the image is for %+v, want two architectures", err, manifest)
			}
		}
	})
	t.Run("signatures in the registry", func(t *testing.T) {
		for _, ref := range []string{host + "/cluster-proxy:v" + version, host + "/charts/cluster-proxy:" + version} {
			verifySignature(t, ref, key)
		}
	})
	t.Run("the page", func(t *testing.T) {
		pageVerifies(t, dist, host)
	})
	t.Run("with a login", func(t *testing.T) {
		publishedWithCredentials(t, dist)
	})
	t.Run("the mirror", func(t *testing.T) {
		mirrored(t, dist, key)
	})
	t.Run("another release of the version", func(t *testing.T) {
		shell(t, first, `echo >> LICENSE && sed -i 's/nobody/no one/' charts/cluster-proxy/Chart.yaml && git -c user.name=a -c user.email=a@b commit -qam b`)
		if err := publish(t.Context(), release(t, first, host, key), host, io.Discard); err == nil || !strings.Contains(err.Error(), "published once") {
			t.Errorf("it was published: %v", err)
		}
	})
}

// filesOfImage are those of an image in a layout, for the first of its architectures.
func filesOfImage(t *testing.T, layout v1.ImageIndex) (names []string) {
	t.Helper()
	first := func(index v1.ImageIndex) v1.Hash {
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) == 0 {
			t.Fatalf("an index has nothing: %v", err)
		}
		return manifest.Manifests[0].Digest
	}
	index, err := layout.ImageIndex(first(layout))
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(first(index))
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(image)
	defer content.Close()
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

// pulled pulls the chart as helm does and returns the images of what it renders.
func pulled(t *testing.T, dist, host string) (images []string) {
	t.Helper()
	client, err := helmregistry.NewClient(helmregistry.ClientOptPlainHTTP())
	if err != nil {
		t.Fatal(err)
	}
	result, err := client.Pull(host + "/charts/cluster-proxy:" + version)
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.ReadFile(filepath.Join(dist, "cluster-proxy-"+version+".tgz")); err != nil || !bytes.Equal(file, result.Chart.Data) {
		t.Errorf("the chart in the registry is not that of the folder: %v", err)
	}
	chart, err := loader.LoadArchive(bytes.NewReader(result.Chart.Data))
	if err != nil {
		t.Fatal(err)
	}
	if chart.Metadata.Version != version || chart.Metadata.AppVersion != version {
		t.Errorf("the chart has version %s and app version %s, want %s", chart.Metadata.Version, chart.Metadata.AppVersion, version)
	}
	values, err := chartutil.ToRenderValues(chart, nil, chartutil.ReleaseOptions{Name: "cluster-proxy", Namespace: "a"}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range files {
		for _, match := range regexp.MustCompile(`(?m)^ *image: "?([^"\s]+)`).FindAllStringSubmatch(text, -1) {
			images = append(images, match[1])
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// verifySignature verifies what cosign would: a signature beside a digest names it, and is by the key.
func verifySignature(t *testing.T, ref, keyFile string) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := remote.Head(tag)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := readSigner(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag.Context().Tag(besideTag(signed.Digest, "sig")))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	payload := layerOf(t, image)
	signature, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations[signatureAnnotation])
	sum := sha256.Sum256(payload)
	if err != nil || !ecdsa.VerifyASN1(&signer.key.PublicKey, sum[:], signature) || !bytes.Contains(payload, []byte(signed.Digest.String())) {
		t.Errorf("%s: %v, or the signature is not of it: %s", ref, err, payload)
	}
	provenance, err := remote.Image(tag.Context().Tag(besideTag(signed.Digest, "att")))
	if err != nil {
		t.Fatal(err)
	}
	if envelope := layerOf(t, provenance); !bytes.Contains(envelope, []byte(statementType)) {
		t.Errorf("%s: the attestation is %s", ref, envelope)
	}
}

func layerOf(t *testing.T, image v1.Image) []byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// pageVerifies runs the commands of the page, on the release and on ones with a changed byte.
func pageVerifies(t *testing.T, dist, host string) {
	page := blocks(t, "verify-a-release.md", "dist", strings.NewReplacer("<version>", version, "<registry>", host, "/tmp/", t.TempDir()+"/"))
	if len(page) != 3 {
		t.Fatalf("the page has %d blocks to run, want 3", len(page))
	}
	var said string
	for _, block := range page {
		said = shell(t, dist, block)
		t.Logf("%s\n%s", block, said)
	}
	// The last block prints what the release was made of, which is what whoever makes it again has to know.
	for _, want := range []string{version, host, "amd64", "linux/amd64", "https://example.com", runtime.Version()} {
		if !strings.Contains(said, strconv.Quote(want)) {
			t.Errorf("the provenance does not have %q", want)
		}
	}
	for file, block := range map[string]int{
		sums: 0, sums + ".sig": 0, "clusterproxy.yaml": 0, "cluster-proxy-" + version + ".tgz": 0, "cluster-proxy-linux-amd64.spdx.json": 0, statements: 2,
	} {
		changed := filepath.Join(t.TempDir(), "changed")
		if err := os.CopyFS(changed, os.DirFS(dist)); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(changed, file))
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(filepath.Join(changed, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := try(t, changed, page[block]); err == nil {
			t.Errorf("a changed byte in %s was not noticed:\n%s", file, out)
		}
		if err := publish(t.Context(), changed, host, io.Discard); err == nil && file != sums+".sig" {
			t.Errorf("a changed byte in %s was published", file)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	dir := checkout(t)
	notEmpty := t.TempDir()
	for _, test := range []struct {
		name   string
		change func(b *builder)
		want   string
	}{
		{"no version", func(b *builder) { b.version = "" }, "want the form"},
		{"a version for a flag", func(b *builder) { b.version = "1.2.3 -X main.x=y" }, "want the form"},
		{"no registry", func(b *builder) { b.registry = "" }, "name the registry"},
		{"a folder that is there", func(b *builder) { b.dist = notEmpty }, "must not be there"},
		{"no key", func(b *builder) { b.key = filepath.Join(dir, "LICENSE") }, "no PEM file"},
		{"a file of the chart that git ignores", func(b *builder) {
			if err := os.WriteFile(filepath.Join(dir, "charts/cluster-proxy/templates/backup.orig"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte("*.orig\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "backup.orig"},
		{"changes", func(b *builder) {
			if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "commit or remove them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := builder{checkout: dir, dist: filepath.Join(t.TempDir(), "dist"), version: version, registry: "a.example.com", out: io.Discard}
			test.change(&b)
			if err := b.build(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that contains %q", err, test.want)
			}
		})
	}
}

// TestSBOM reads what this test was built from.
func TestSBOM(t *testing.T) {
	program := thisProgram(t)
	list, err := sbom("test", version, program, time.Unix(1000, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("%x", sha256.Sum256(program)), "pkg:golang/github.com/google/go-containerregistry@v", "1970-01-01T00:16:40Z"} {
		if !bytes.Contains(list, []byte(want)) {
			t.Errorf("the list does not have %q", want)
		}
	}
}

func thisProgram(t *testing.T) []byte {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
