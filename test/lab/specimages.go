//go:build linux

package lab

import (
	"context"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

// Images packs the images of the specs into a folder, for LoadImage. Their
// programs are Kubernetes' agnhost and Debian's busybox, which has the tools that
// upstream's agnhost image takes from Alpine. Nothing but to be started is asked
// of nginx, which is a web server of busybox.
func (s Specs) Images(ctx context.Context, dir string) (files []string, err error) {
	tools, err := shell()
	if err != nil {
		return nil, err
	}
	tools = append(tools, oci.File{Path: "/tmp/.keep", Mode: 0o644}) // programs write there
	content, err := os.ReadFile(filepath.Join(s.dir, "agnhost"))
	if err != nil {
		return nil, err
	}
	agnhost := append(tools[:len(tools):len(tools)], oci.File{Path: "/agnhost", Content: content}, oci.File{Path: "/agnhost-2", Link: "agnhost"})
	pages, err := nautilus(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range []image{
		{"agnhost:" + agnhostVersion, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, agnhost},
		{"agnhost:2.55", v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, agnhost},
		{"busybox:1.37.0-2", v1.Config{Cmd: []string{"sh"}}, tools},
		{"nautilus:1.8", v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}}, append(agnhost[:len(agnhost):len(agnhost)], pages...)},
		{"nginx:1.27.0-2", v1.Config{Cmd: []string{"httpd", "-f", "-p", "80", "-h", "/tmp"}}, tools},
		{"pause:3.10.2", v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, agnhost},
	} {
		i.name, i.config.Env = specsRegistry+"/"+i.name, []string{"PATH=/bin"}
		file := filepath.Join(dir, filepath.Base(i.name)+".tar")
		if err := i.write(file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// nautilus is what the image of that name serves.
func nautilus(ctx context.Context) (files []oci.File, err error) {
	source, err := sourceDir()
	if err != nil {
		return nil, err
	}
	kubernetes, err := moduleDir(ctx, filepath.Join(source, "binaries", "e2e"), "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"nautilus.jpg", "data.json"} {
		content, err := os.ReadFile(filepath.Join(kubernetes, "test/images/nautilus/html", name))
		if err != nil {
			return nil, err
		}
		files = append(files, oci.File{Path: "/" + name, Content: content, Mode: 0o644})
	}
	return files, nil
}
