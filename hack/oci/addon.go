package oci

// Addon is the addon's image without its variants.
func Addon(name string) Image {
	return Image{
		Name: name, User: "65532:65532", Entrypoint: []string{"/cluster-proxy"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "cluster-proxy",
			"org.opencontainers.image.source":   "https://github.com/open-cluster-management-io/cluster-proxy",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
}

// AddonVariant holds the addon's static binary.
func AddonVariant(arch string, binary []byte) Variant {
	return Variant{Arch: arch, Files: []File{{Path: "/cluster-proxy", Content: binary}}}
}
