// Package kubernetes stands for Prometheus' package of that name, of which promtool
// knows one type, and which has half of Kubernetes' client.
package kubernetes

import (
	"github.com/prometheus/common/config"

	"github.com/prometheus/prometheus/discovery"
)

// SDConfig has what promtool reads of a configuration.
type SDConfig struct {
	discovery.Config
	HTTPClientConfig config.HTTPClientConfig
}
