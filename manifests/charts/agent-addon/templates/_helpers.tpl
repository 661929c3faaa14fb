{{- define "selector" -}}
open-cluster-management.io/addon: cluster-proxy
proxy.open-cluster-management.io/component-name: proxy-agent
{{- end }}

{{- /* Names without a namespace are apart from those of an agent in another namespace. */ -}}
{{- define "impersonator" -}}
open-cluster-management:cluster-proxy:impersonator:{{ .Release.Namespace }}
{{- end }}

{{- define "index" -}}
open-cluster-management:cluster-proxy:index:{{ .Release.Namespace }}
{{- end }}
