#!/usr/bin/env bash
# Generates what is made from the API's Go types: deepcopy functions and the
# CustomResourceDefinitions that the chart installs.
set -euo pipefail
cd "$(dirname "$0")/.."
go tool controller-gen object paths=./pkg/apis/...
go tool controller-gen crd:crdVersions=v1 paths=./pkg/apis/... output:crd:dir=charts/cluster-proxy/files
for crd in charts/cluster-proxy/files/proxy.open-cluster-management.io_*.yaml; do
  mv "$crd" "${crd/proxy.open-cluster-management.io_/}"
done
