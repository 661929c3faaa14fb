//go:build tools

// Package tools pins helm 4.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
