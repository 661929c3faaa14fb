package lab

import (
	"os"
	"path/filepath"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

// Images packs the images that the suite's manifests name into a folder, for
// LoadImage: the suite, and stand-ins for those of its Services, which are Debian's
// busybox and, for OpenSSL, labnode. The lab must have nodes.
func (s UpstreamSuite) Images(l *Lab, dir string) (files []string, err error) {
	tools, err := shell()
	if err != nil {
		return nil, err
	}
	labnode, err := os.ReadFile(l.extra.path("labnode"))
	if err != nil {
		return nil, err
	}
	suite, err := os.ReadFile(s.program)
	if err != nil {
		return nil, err
	}
	with := func(more oci.File) []oci.File { return append(tools[:len(tools):len(tools)], more) }
	for name, image := range map[string]image{
		"suite":   plain("quay.io/open-cluster-management/cluster-proxy-e2e:latest", []string{"/e2e"}, oci.File{Path: "/e2e", Content: suite}),
		"busybox": plain("quay.io/prometheus/busybox:latest", nil, with(oci.File{Path: "/var/www/.keep", Mode: 0o644})...),
		"openssl": plain("docker.io/alpine/openssl:latest", nil, with(oci.File{Path: "/bin/openssl", Content: labnode})...),
	} {
		file := filepath.Join(dir, name+".tar")
		if err := image.write(file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
