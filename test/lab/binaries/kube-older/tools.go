//go:build tools

// Package tools pins the kube-apiserver of a cluster that is a minor release of Kubernetes older
// than the others of a lab, and its kubectl.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
