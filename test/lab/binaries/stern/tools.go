//go:build tools

// Package tools pins stern, which follows the logs of many pods.
package tools

import _ "github.com/stern/stern"
