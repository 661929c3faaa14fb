// Package tarball reads archives for tests.
package tarball

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files returns the files of a .tar.gz, by their names in its one folder.
func Files(t *testing.T, file, folder string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Read(t, f, folder+"/")
}

// Read returns the files of a .tar.gz, by their names behind a prefix. A file that has another one,
// or is there twice, is an error of the test.
func Read(t *testing.T, archived io.Reader, prefix string) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(archived)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(header.Name, prefix)
		if _, twice := files[name]; !ok || !filepath.IsLocal(name) || twice {
			t.Errorf("file %q lies outside of %q, or is there twice", header.Name, prefix)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(content)
	}
}
