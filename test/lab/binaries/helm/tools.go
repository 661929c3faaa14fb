//go:build tools

// Package tools pins the helm that installs the chart in a lab.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
