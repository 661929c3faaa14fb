package oci

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestTar(t *testing.T) {
	var archive bytes.Buffer
	files := []File{{Path: "/b/program", Content: []byte("one")}, {Path: "b/link", Link: "program"}, {Path: "a", Content: []byte("two"), Mode: 0o644}}
	if err := Tar(&archive, files, time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Name, Link string
		Mode, Time int64
		Content    string
	}
	var got []entry
	for reader := tar.NewReader(&archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s has an owner: %+v", header.Name, header)
		}
		got = append(got, entry{header.Name, header.Linkname, header.Mode, header.ModTime.Unix(), string(content)})
	}
	want := []entry{{"a", "", 0o644, 1000, "two"}, {"b/", "", 0o755, 1000, ""}, {"b/link", "program", 0o777, 1000, ""}, {"b/program", "", 0o755, 1000, "one"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := Tar(io.Discard, append(files, File{Path: "b/../a"}), time.Unix(1000, 0)); err == nil {
		t.Error("a file was written twice")
	}
}

func TestImage(t *testing.T) {
	image, err := Image("s390x", time.Unix(1000, 0), Addon(), static.NewLayer([]byte("layer"), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image, validate.Fast); err != nil {
		t.Error(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Architecture != "s390x" || file.OS != "linux" || file.Created.Unix() != 1000 || file.Config.User != "65532:65532" || !cmp.Equal(file.Config.Entrypoint, []string{"/cluster-proxy"}) {
		t.Errorf("the image is %+v", file)
	}
}
