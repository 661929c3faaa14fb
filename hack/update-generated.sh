#!/usr/bin/env bash
# Generates what is made from the API's Go types: deepcopy functions, OpenAPI schemas and the
# CustomResourceDefinitions that the chart installs.
set -euo pipefail
cd "$(dirname "$0")/.."
go tool controller-gen object paths=./pkg/apis/...
go tool openapi-gen --output-dir=pkg/apis/openapi --output-pkg=open-cluster-management.io/cluster-proxy/pkg/apis/openapi --output-file=zz_generated.openapi.go \
  --output-model-name-file=zz_generated.model_name.go --go-header-file=/dev/null --report-filename=/dev/null \
  --readonly-pkg=k8s.io/apimachinery/pkg/apis/meta/v1,k8s.io/apimachinery/pkg/runtime,k8s.io/apimachinery/pkg/version \
  k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version \
  ./pkg/apis/clusterproxy/v1alpha1 ./pkg/apis/karmada/v1alpha1 ./pkg/apis/proxy/v1alpha1
go tool controller-gen crd:crdVersions=v1 paths=./pkg/apis/... output:crd:dir=charts/cluster-proxy/files
for crd in charts/cluster-proxy/files/proxy.open-cluster-management.io_*.yaml; do
  mv "$crd" "${crd/proxy.open-cluster-management.io_/}"
done
