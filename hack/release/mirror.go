package main

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// mirror builds this program for a platform and writes it with a release.
func mirror(checkout, dist, platform, key string, out io.Writer) error {
	s, err := openSource(checkout)
	if err != nil {
		return err
	}
	system, arch, _ := strings.Cut(platform, "/")
	program, err := s.program("./hack/release", system, arch, "")
	if err != nil {
		return err
	}
	return s.writeMirror(program, dist, system+"-"+arch, key, out)
}

// writeMirror writes a program that has a release appended, as a zip archive. Started with a registry, it
// pushes the release there; unzip reads it too. The file is beside the release's folder.
func (s source) writeMirror(program []byte, dist, machine, key string, out io.Writer) error {
	signer, err := readSigner(key)
	if err != nil {
		return err
	}
	if err := check(dist); err != nil {
		return err
	}
	version, err := versionOf(dist)
	if err != nil {
		return err
	}
	content, err := appendFiles(program, dist, s)
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(filepath.Clean(dist)), executable(fmt.Sprintf("cluster-proxy-%s-mirror-%s", version, machine), machine))
	if err := os.WriteFile(file, content, 0o755); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d MB\n", file, len(content)>>20)
	if signer.key == nil {
		return nil
	}
	signature, err := signer.sign(content)
	if err != nil {
		return err
	}
	return os.WriteFile(file+".sig", signature, 0o644)
}

// versionOf is the version of a release, by the name of its chart.
func versionOf(dist string) (string, error) {
	charts, err := filepath.Glob(filepath.Join(dist, chartName+"-*.tgz"))
	if err != nil || len(charts) != 1 {
		return "", fmt.Errorf("%s has %d charts, want one: %v", dist, len(charts), err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(charts[0]), chartName+"-"), ".tgz"), nil
}

// appendFiles appends the files of a folder to a program. They are compressed already.
func appendFiles(program []byte, dir string, s source) ([]byte, error) {
	files, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	content := bytes.NewBuffer(program)
	archive := zip.NewWriter(content)
	archive.SetOffset(int64(len(program)))
	for _, f := range files {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: f.Path, Method: zip.Store, Modified: s.created})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err = archive.Close()
	return content.Bytes(), err
}

// appended opens what is appended to this program.
func appended() (*zip.ReadCloser, error) {
	file, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return zip.OpenReader(file)
}

// pushContent pushes the release in an archive, and says how to install it.
func pushContent(ctx context.Context, content *zip.Reader, registry string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "cluster-proxy-mirror-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, content); err != nil {
		return err
	}
	if err := publish(ctx, dir, registry, out); err != nil {
		return err
	}
	version, err := versionOf(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nhelm upgrade --install cluster-proxy oci://%s/charts/%s --version %s \\\n  --namespace open-cluster-management-addon --create-namespace --set registry=%s\n", registry, chartName, version, registry)
	return nil
}
