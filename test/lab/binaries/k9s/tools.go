//go:build tools

// Package tools pins k9s, a terminal program.
package tools

import _ "github.com/derailed/k9s"
