//go:build tools

// Package tools pins OCM's own cluster-proxy, from which users come to this one.
package tools

import (
	_ "open-cluster-management.io/cluster-proxy/cmd/addon-agent"
	_ "open-cluster-management.io/cluster-proxy/cmd/addon-manager"
	_ "open-cluster-management.io/cluster-proxy/cmd/cluster-proxy"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"
)
