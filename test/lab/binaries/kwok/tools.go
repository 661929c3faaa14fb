//go:build tools

// Package tools pins kwok, which stands in for nodes in a lab.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
