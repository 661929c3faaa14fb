//go:build tools

// Package tools pins the Prometheus that scrapes a lab, and promtool.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
