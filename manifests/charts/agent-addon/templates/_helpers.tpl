{{- define "selector" -}}
open-cluster-management.io/addon: cluster-proxy
proxy.open-cluster-management.io/component-name: proxy-agent
{{- end }}
