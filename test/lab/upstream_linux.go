package lab

import (
	"os"
	"path/filepath"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

// Pack packs its programs as the image that its chart names with the default
// values, in a file.
func (u Upstream) Pack(file string) error {
	var files []oci.File
	for name := range upstreamPrograms {
		content, err := os.ReadFile(filepath.Join(u.programs, name))
		if err != nil {
			return err
		}
		files = append(files, oci.File{Path: "/" + name, Content: content})
	}
	image := plain(addonImage+":"+UpstreamVersion, nil, files...)
	image.config.User = "65532:65532"
	return image.write(file)
}
