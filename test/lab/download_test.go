package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archiveOf returns an archive as envtest packs it, of programs that hold their own names.
func archiveOf(t *testing.T, names ...string) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	content := tar.NewWriter(zipped)
	for _, name := range names {
		header := tar.Header{Name: "controller-tools/envtest/" + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}
		if target, ok := strings.CutPrefix(name, "link:"); ok {
			header = tar.Header{Name: "controller-tools/envtest/" + target, Typeflag: tar.TypeSymlink, Linkname: "/bin/sh"}
		}
		if err := content.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := content.Write([]byte(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func TestDownload(t *testing.T) {
	whole := archiveOf(t, "etcd", "kube-apiserver", "kubectl", "README")
	for name, test := range map[string]struct {
		served  []byte
		sum     []byte // of these bytes; served if it is nil
		refused string
	}{
		"whole":           {served: whole},
		"another archive": {served: archiveOf(t, "etcd", "kube-apiserver", "kubectl"), sum: whole, refused: "SHA-512 sum is"},
		"cut short":       {served: whole[:len(whole)/2], sum: whole, refused: "SHA-512 sum is"},
		"not an archive":  {served: []byte("<html>"), refused: "unpacking"},
		"without etcd":    {served: archiveOf(t, "kube-apiserver", "kubectl"), refused: "it has no etcd"},
		"with a link":     {served: archiveOf(t, "link:etcd", "kube-apiserver", "kubectl"), refused: "it has no etcd"},
		"not found":       {refused: "404"},
	} {
		t.Run(name, func(t *testing.T) {
			mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if test.served == nil {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write(test.served)
			}))
			defer mirror.Close()
			cache := t.TempDir()
			sum := test.sum
			if sum == nil {
				sum = test.served
			}
			folder, err := download(t.Context(), mirror.URL+"/envtest.tar.gz", fmt.Sprintf("%x", sha512.Sum512(sum)), filepath.Join(cache, "envtest"), t.Output())
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got %v, want an error with %q", err, test.refused)
				}
				if left, _ := os.ReadDir(cache); len(left) != 0 {
					t.Errorf("%v is left in the cache", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range controlPlane.links {
				content, err := os.ReadFile(filepath.Join(folder, name))
				if err != nil || string(content) != name {
					t.Errorf("%s holds %q (%v)", name, content, err)
				}
			}
			mirror.Close()
			if again, err := download(t.Context(), mirror.URL, "", folder, t.Output()); again != folder || err != nil {
				t.Errorf("the second time it is not taken from the cache: %q, %v", again, err)
			}
			entries, err := os.ReadDir(folder)
			if err != nil || len(entries) != len(controlPlane.links) || slices.ContainsFunc(entries, os.DirEntry.IsDir) {
				t.Errorf("the folder has %v (%v)", entries, err)
			}
		})
	}
}
