// Package oci writes container images without a container engine: an archive
// in the OCI image layout, which containerd, podman, skopeo and crane read.
//
// The same files give the same bytes, on any machine: entries are sorted, carry
// one time and no owner, and nothing of the machine gets in.
package oci
