// Package manifests holds the chart that the addon manager renders for each
// managed cluster.
package manifests

import "embed"

// Dir is the chart's folder in FS.
const Dir = "charts/agent-addon"

// FS holds the chart.
//
//go:embed charts/agent-addon
//go:embed charts/agent-addon/templates/_helpers.tpl
var FS embed.FS
