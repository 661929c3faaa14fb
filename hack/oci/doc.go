// Package oci writes container images without a container engine: an archive
// in the OCI image layout, which containerd, podman, skopeo and crane read.
//
// The same files give the same bytes, on any machine: entries are sorted, carry
// one time and no owner, and nothing of the machine gets in.
//
// go-containerregistry is not used. It writes the layout as a folder, or Docker's
// archive, so that most of what is here, the archives with one order, time and owner,
// would be needed all the same, and it brings five more modules.
package oci
