package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/test/testkit/tarball"
)

// TestManifest holds the manifest to what krew checks before it installs a plugin.
func TestManifest(t *testing.T) {
	const version = "1.2.3"
	b := builder{source: source{dir: "../..", created: time.Unix(1000, 0)}}
	m := newManifest(version)
	archives := map[string][]byte{}
	for _, p := range platforms {
		system, arch, _ := strings.Cut(p, "/")
		archived, err := b.packPlugin(system, []byte("program for "+p))
		if err != nil {
			t.Fatal(err)
		}
		one := newPlatform("https://example.com/releases", version, system, arch, archived)
		archives[one.URI] = archived
		m.Spec.Platforms = append(m.Spec.Platforms, one)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got manifest
	if err := yaml.UnmarshalStrict(text, &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || got.Kind != "Plugin" || got.Metadata["name"] != "clusterproxy" || got.Spec.Version != "v"+version {
		t.Errorf("it is %s %s %s %s", got.APIVersion, got.Kind, got.Metadata, got.Spec.Version)
	}
	if short := got.Spec.ShortDescription; short == "" || len(short) > 50 || strings.ContainsAny(short, "\n") {
		t.Errorf("shortDescription %q is not one short line", short)
	}
	seen := map[string]bool{}
	for _, p := range got.Spec.Platforms {
		at := p.Selector.MatchLabels["os"] + "/" + p.Selector.MatchLabels["arch"]
		if seen[at] {
			t.Errorf("%s is there twice", at)
		}
		seen[at] = true
		address, err := url.Parse(p.URI)
		if err != nil || address.Scheme != "https" || !strings.HasSuffix(address.Path, ".tar.gz") || path.Base(path.Dir(address.Path)) != "v"+version {
			t.Errorf("%s: uri %q, %v", at, p.URI, err)
		}
		archived, ok := archives[p.URI]
		if want := fmt.Sprintf("%x", sha256.Sum256(archived)); !ok || p.SHA256 != want {
			t.Errorf("%s: sha256 %s of %s, want %s", at, p.SHA256, p.URI, want)
		}
		files := tarball.Read(t, bytes.NewReader(archived), "")
		if content := files[p.Bin]; content != "program for "+at {
			t.Errorf("%s: the archive has %q as %s", at, content, p.Bin)
		}
		if files["LICENSE"] == "" || files["kubectl_complete-clusterproxy"] == "" || len(files) != 3 {
			t.Errorf("%s: the archive has %d files, want the program, its license and its completion", at, len(files))
		}
	}
	for _, p := range platforms {
		if !seen[p] {
			t.Errorf("%s is missing", p)
		}
	}
}
