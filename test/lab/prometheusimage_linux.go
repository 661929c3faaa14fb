package lab

import (
	"os"

	"open-cluster-management.io/cluster-proxy/hack/oci"
)

// Image packs Prometheus as an image into a file, for LoadImage, and returns its name.
func (p Prometheus) Image(file string) (string, error) {
	content, err := os.ReadFile(p.Program())
	if err != nil {
		return "", err
	}
	const name = "lab.local/prometheus:lab"
	return name, plain(name, []string{"/prometheus"}, oci.File{Path: "/prometheus", Content: content}).write(file)
}
