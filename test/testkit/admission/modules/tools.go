//go:build tools

// Package tools pins modules for their CustomResourceDefinitions.
package tools

import (
	_ "github.com/openshift/api/route/v1"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
