#!/usr/bin/env bash
# Prints the Secret by which Argo CD knows a managed cluster. Needs kubectl with the hub's kubeconfig.
set -euo pipefail
cluster=${1:?the name of a managed cluster}
addon=open-cluster-management-addon

ca=$(kubectl --namespace "$addon" get secret proxy-server-ca -o jsonpath='{.data.ca\.crt}')
if [[ -z "$ca" ]]; then
  echo "there is no CA in Secret $addon/proxy-server-ca" >&2
  exit 1
fi
cat <<END
apiVersion: v1
kind: Secret
metadata:
  name: cluster-$cluster
  namespace: argocd
  labels:
    argocd.argoproj.io/secret-type: cluster
stringData:
  name: $cluster
  server: https://cluster-proxy-addon-user.$addon.svc:9092/$cluster
  config: |
    {
      "execProviderConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/plugins/clusterprofile-credentials"},
      "tlsClientConfig": {"insecure": false, "caData": "$ca"}
    }
END
