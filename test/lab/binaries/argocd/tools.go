//go:build tools

// Package tools pins the agent of Argo CD's gitops-engine, which syncs a folder of manifests.
package tools

import _ "github.com/argoproj/argo-cd/gitops-engine/agent"
