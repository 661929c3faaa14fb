#!/usr/bin/env bash
# Makes charts/cluster-proxy/crds, which Helm uses for the first install, from charts/cluster-proxy/files, with which
# the chart upgrades. It adds the marks by which Helm knows its own; templates/crd.yaml says why. They are no kubebuilder
# markers: those would be in both files and in the API's public types, and the marks are of one release's name.
set -euo pipefail
cd "$(dirname "$0")/../charts/cluster-proxy"
for from in $(grep -l '^kind: CustomResourceDefinition$' files/*.yaml); do
  awk '
    /^---$/ { next }
    /^metadata:/ && !done {
      print; inMetadata = 1; next
    }
    inMetadata && /^  annotations:/ { print; marks(); done = 1; inMetadata = 0; next }
    inMetadata && /^[^ ]/ { print "  annotations:"; marks(); done = 1; inMetadata = 0 }
    done && !labelled && /^  name:/ { print "  labels:"; print "    app.kubernetes.io/managed-by: Helm"; labelled = 1 }
    { print }
    function marks() {
      print "    helm.sh/resource-policy: keep"
      print "    meta.helm.sh/release-name: cluster-proxy"
      print "    meta.helm.sh/release-namespace: open-cluster-management-addon"
    }
  ' "$from" > "crds/$(basename "$from")"
done
