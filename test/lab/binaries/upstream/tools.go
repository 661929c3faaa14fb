//go:build tools

// Package tools pins OCM's own cluster-proxy, from which users come to this one.
package tools

import (
	_ "open-cluster-management.io/cluster-proxy/cmd/addon-agent"
	_ "open-cluster-management.io/cluster-proxy/cmd/addon-manager"
	_ "open-cluster-management.io/cluster-proxy/cmd/cluster-proxy"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"

	// Its e2e suite is nothing but tests, which cannot be imported. These are what
	// the suite imports and the programs do not.
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "k8s.io/client-go/tools/remotecommand"
	_ "open-cluster-management.io/api/client/addon/clientset/versioned"
	_ "open-cluster-management.io/api/client/cluster/clientset/versioned"
	_ "sigs.k8s.io/controller-runtime/pkg/log/zap"
)
